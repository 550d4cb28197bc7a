// The scheduler, as csrc/_core.pyi describes it.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <limits>
#include <string_view>

#include "bind.h"
#include "scheduler.h"

namespace py = pybind11;

namespace pagemill {
namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style>;

template <class T>
std::span<const T> span_of(const Array<T>& array) {
  if (array.ndim() != 1) throw std::invalid_argument("a one-dimensional array is needed");
  return {array.data(), static_cast<size_t>(array.size())};
}

// A view that keeps `owner`, and with it the buffer, alive.
template <class T>
py::array view(const std::vector<T>& buffer, size_t size, py::handle owner) {
  return py::array_t<T>(static_cast<py::ssize_t>(size), buffer.data(), owner);
}

// Identities such as a salt or a tenant may be any 64-bit number, signed or not.
uint64_t bits_of(const py::int_& number) {
  const uint64_t bits = PyLong_AsUnsignedLongLongMask(number.ptr());
  const bool suspect = bits == std::numeric_limits<uint64_t>::max();
  if (suspect && PyErr_Occurred()) throw py::error_already_set();
  return bits;
}

enum class Extent { kRows, kRowsPlusOne, kTokens, kAll };

template <class T>
void def_array(py::class_<Plan>& plan, const char* name, std::vector<T> Plan::* buffer,
               Extent extent) {
  plan.def_property_readonly(name, [buffer, extent](py::object self) {
    const Plan& p = self.cast<const Plan&>();
    const std::vector<T>& data = p.*buffer;
    switch (extent) {
      case Extent::kRows: return view(data, p.num_rows, self);
      case Extent::kRowsPlusOne: return view(data, p.num_rows + 1, self);
      case Extent::kTokens: return view(data, p.num_tokens, self);
      default: return view(data, data.size(), self);
    }
  });
}

void bind_config(py::module_& module) {
  py::class_<SchedulerConfig> config(module, "SchedulerConfig");
  const SchedulerConfig d;
  config.def(
      py::init([](int32_t num_blocks, int32_t block_size, int32_t max_num_seqs,
                  int32_t max_num_batched_tokens, int32_t max_model_len, bool enable_prefix_caching,
                  bool enable_chunked_prefill, int32_t long_prefill_token_threshold,
                  int32_t max_partial_prefills, const std::string& policy, double ageing_s,
                  int32_t fair_quantum, int32_t group_size, int32_t watermark_blocks,
                  int32_t max_waiting_requests, int64_t max_waiting_tokens,
                  int32_t num_scheduler_steps, int32_t max_outstanding_plans) {
        return SchedulerConfig{num_blocks,
                               block_size,
                               max_num_seqs,
                               max_num_batched_tokens,
                               max_model_len,
                               enable_prefix_caching,
                               enable_chunked_prefill,
                               long_prefill_token_threshold,
                               max_partial_prefills,
                               policy,
                               ageing_s,
                               fair_quantum,
                               group_size,
                               watermark_blocks,
                               max_waiting_requests,
                               max_waiting_tokens,
                               num_scheduler_steps,
                               max_outstanding_plans};
      }),
      py::kw_only(), py::arg("num_blocks"), py::arg("block_size") = d.block_size,
      py::arg("max_num_seqs") = d.max_num_seqs,
      py::arg("max_num_batched_tokens") = d.max_num_batched_tokens,
      py::arg("max_model_len") = d.max_model_len,
      py::arg("enable_prefix_caching") = d.enable_prefix_caching,
      py::arg("enable_chunked_prefill") = d.enable_chunked_prefill,
      py::arg("long_prefill_token_threshold") = d.long_prefill_token_threshold,
      py::arg("max_partial_prefills") = d.max_partial_prefills, py::arg("policy") = d.policy,
      py::arg("ageing_s") = d.ageing_s, py::arg("fair_quantum") = d.fair_quantum,
      py::arg("group_size") = d.group_size, py::arg("watermark_blocks") = d.watermark_blocks,
      py::arg("max_waiting_requests") = d.max_waiting_requests,
      py::arg("max_waiting_tokens") = d.max_waiting_tokens,
      py::arg("num_scheduler_steps") = d.num_scheduler_steps,
      py::arg("max_outstanding_plans") = d.max_outstanding_plans);
  config.def_readwrite("num_blocks", &SchedulerConfig::num_blocks)
      .def_readwrite("block_size", &SchedulerConfig::block_size)
      .def_readwrite("max_num_seqs", &SchedulerConfig::max_num_seqs)
      .def_readwrite("max_num_batched_tokens", &SchedulerConfig::max_num_batched_tokens)
      .def_readwrite("max_model_len", &SchedulerConfig::max_model_len)
      .def_readwrite("enable_prefix_caching", &SchedulerConfig::enable_prefix_caching)
      .def_readwrite("enable_chunked_prefill", &SchedulerConfig::enable_chunked_prefill)
      .def_readwrite("long_prefill_token_threshold", &SchedulerConfig::long_prefill_token_threshold)
      .def_readwrite("max_partial_prefills", &SchedulerConfig::max_partial_prefills)
      .def_readwrite("policy", &SchedulerConfig::policy)
      .def_readwrite("ageing_s", &SchedulerConfig::ageing_s)
      .def_readwrite("fair_quantum", &SchedulerConfig::fair_quantum)
      .def_readwrite("group_size", &SchedulerConfig::group_size)
      .def_readwrite("watermark_blocks", &SchedulerConfig::watermark_blocks)
      .def_readwrite("max_waiting_requests", &SchedulerConfig::max_waiting_requests)
      .def_readwrite("max_waiting_tokens", &SchedulerConfig::max_waiting_tokens)
      .def_readwrite("num_scheduler_steps", &SchedulerConfig::num_scheduler_steps)
      .def_readwrite("max_outstanding_plans", &SchedulerConfig::max_outstanding_plans);
}

void bind_plan(py::module_& module) {
  py::class_<Plan> plan(module, "Plan");
  plan.def_readonly("num_rows", &Plan::num_rows);
  plan.def_readonly("num_tokens", &Plan::num_tokens);
  def_array(plan, "slots", &Plan::slots, Extent::kRows);
  def_array(plan, "query_start", &Plan::query_start, Extent::kRowsPlusOne);
  def_array(plan, "context_lens", &Plan::context_lens, Extent::kRows);
  def_array(plan, "sampled", &Plan::sampled, Extent::kRows);
  def_array(plan, "num_drafts", &Plan::num_drafts, Extent::kRows);
  def_array(plan, "passes", &Plan::passes, Extent::kRows);
  def_array(plan, "token_ids", &Plan::token_ids, Extent::kTokens);
  def_array(plan, "positions", &Plan::positions, Extent::kTokens);
  def_array(plan, "slot_mapping", &Plan::slot_mapping, Extent::kTokens);
  def_array(plan, "started_slots", &Plan::started_slots, Extent::kAll);
  def_array(plan, "started_ids", &Plan::started_ids, Extent::kAll);
  def_array(plan, "ended_slots", &Plan::ended_slots, Extent::kAll);
  def_array(plan, "table_slots", &Plan::table_slots, Extent::kAll);
  def_array(plan, "table_indices", &Plan::table_indices, Extent::kAll);
  def_array(plan, "table_blocks", &Plan::table_blocks, Extent::kAll);
  def_array(plan, "copy_src", &Plan::copy_src, Extent::kAll);
  def_array(plan, "copy_dst", &Plan::copy_dst, Extent::kAll);
  def_array(plan, "ended_ids", &Plan::ended_ids, Extent::kAll);
  def_array(plan, "ended_reasons", &Plan::ended_reasons, Extent::kAll);

  py::class_<Outcome> outcome(module, "Commit");
  outcome.def_property_readonly("request_ids", [](py::object self) {
    const Outcome& o = self.cast<const Outcome&>();
    return view(o.request_ids, o.num_rows, self);
  });
  outcome.def_property_readonly("token_start", [](py::object self) {
    const Outcome& o = self.cast<const Outcome&>();
    return view(o.token_start, o.num_rows + 1, self);
  });
  outcome.def_property_readonly("tokens", [](py::object self) {
    const Outcome& o = self.cast<const Outcome&>();
    return view(o.tokens, o.num_tokens(), self);
  });
  outcome.def_property_readonly("finish", [](py::object self) {
    const Outcome& o = self.cast<const Outcome&>();
    return view(o.finish, o.num_rows, self);
  });
}

void bind_codes(py::module_& module) {
  struct FinishCodes {};
  py::class_<FinishCodes> finish(module, "Finish");
  finish.attr("STOP") = static_cast<int>(Finish::kStop);
  finish.attr("LENGTH") = static_cast<int>(Finish::kLength);
  finish.attr("CANCELLED") = static_cast<int>(Finish::kCancelled);
  finish.attr("DEADLINE") = static_cast<int>(Finish::kDeadline);
  finish.attr("LEASE") = static_cast<int>(Finish::kLease);
  struct RefusalCodes {};
  py::class_<RefusalCodes> refusal(module, "Refusal");
  refusal.attr("NONE") = static_cast<int>(Refusal::kNone);
  refusal.attr("TOO_LONG") = static_cast<int>(Refusal::kTooLong);
  refusal.attr("QUEUE_REQUESTS") = static_cast<int>(Refusal::kQueueRequests);
  refusal.attr("QUEUE_TOKENS") = static_cast<int>(Refusal::kQueueTokens);
  refusal.attr("DUPLICATE_ID") = static_cast<int>(Refusal::kDuplicateId);
  refusal.attr("EMPTY_PROMPT") = static_cast<int>(Refusal::kEmptyPrompt);
  refusal.attr("UNKNOWN_PARENT") = static_cast<int>(Refusal::kUnknownParent);
}

template <class T>
T value_of(py::handle value, std::string_view name) {
  py::detail::make_caster<T> caster;
  if (!caster.load(value, true)) throw py::type_error(std::string(name) + " is of a wrong type");
  return py::detail::cast_op<T>(caster);
}

// Sets the field of a submission that a keyword names; false when there is none.
bool set_option(Submission& to, std::string_view name, py::handle value) {
  const auto bits = [&] { return bits_of(value_of<py::int_>(value, name)); };
  if (name == "max_tokens") to.max_tokens = value_of<int32_t>(value, name);
  else if (name == "priority") to.priority = value_of<int64_t>(value, name);
  else if (name == "salt") to.salt = bits();
  else if (name == "salt_from") to.salt_from = value_of<int32_t>(value, name);
  else if (name == "tenant") to.tenant = static_cast<int64_t>(bits());
  else if (name == "tag") to.tag = static_cast<int64_t>(bits());
  else if (name == "adapter") to.adapter = static_cast<int64_t>(bits());
  else if (name == "client") to.client = static_cast<int64_t>(bits());
  else if (name == "arrival") to.arrival = value_of<double>(value, name);
  else if (name == "deadline") to.deadline = value_of<double>(value, name);
  else if (name == "multi_step") to.multi_step = value_of<bool>(value, name);
  else if (name == "admitted") to.admitted = value_of<bool>(value, name);
  else return false;
  return true;
}

// Reads the keywords that a call names: pybind11 would look up and convert all fourteen, which took
// longer than hashing the prompt.
int add_request(Scheduler& scheduler, int64_t request_id, const Array<int32_t>& token_ids,
                const py::kwargs& options) {
  Submission submission;
  submission.id = request_id;
  submission.token_ids = span_of(token_ids);
  if (!options.contains("max_tokens")) throw py::type_error("add() needs max_tokens");
  std::vector<int32_t> stops;
  for (const auto& [key, value] : options) {
    const auto name = key.cast<std::string_view>();
    if (name == "stop_token_ids") {
      stops = value_of<std::vector<int32_t>>(value, name);
      submission.stop_token_ids = stops;
    } else if (!set_option(submission, name, value)) {
      throw py::type_error("add() got an unexpected keyword argument '" + std::string(name) + "'");
    }
  }
  return static_cast<int>(scheduler.add(submission));
}

int propose_drafts(Scheduler& scheduler, const Array<int64_t>& request_ids,
                   const Array<int32_t>& starts, const Array<int32_t>& tokens) {
  const auto ids = span_of(request_ids);
  const auto bounds = span_of(starts);
  const auto drafts = span_of(tokens);
  if (bounds.size() != ids.size() + 1) throw std::invalid_argument("starts needs ids + 1 elements");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (bounds[i] < 0 || bounds[i] > bounds[i + 1]) {
      throw std::invalid_argument("starts must be ascending");
    }
  }
  if (static_cast<size_t>(bounds.back()) > drafts.size()) {
    throw std::invalid_argument("starts point beyond the tokens");
  }
  int taken = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    taken += scheduler.propose(ids[i], drafts.subspan(bounds[i], bounds[i + 1] - bounds[i]));
  }
  return taken;
}

py::dict stats_of(const Scheduler& scheduler) {
  const Counters& c = scheduler.counters();
  py::dict d;
  const auto put = [&d](const char* name, int64_t value) { d[name] = value; };
  put("requests_added", c.requests_added);
  put("requests_refused", c.requests_refused);
  put("requests_started", c.requests_started);
  put("requests_resumed", c.requests_resumed);
  put("finished_stop", c.finished_stop);
  put("finished_length", c.finished_length);
  put("cancelled", c.cancelled);
  put("deadline_missed", c.deadline_missed);
  put("leases_expired", c.leases_expired);
  put("forks", c.forks);
  put("forks_shared", c.forks_shared);
  put("plans", c.plans);
  put("commits", c.commits);
  put("abandons", c.abandons);
  put("rows", c.rows);
  put("preemptions", c.preemptions);
  put("stalls", c.stalls);
  put("prompt_tokens", c.prompt_tokens);
  put("prefill_chunks", c.prefill_chunks);
  put("scheduled_tokens", c.scheduled_tokens);
  put("output_tokens", c.output_tokens);
  put("drafted_tokens", c.drafted_tokens);
  put("drafts_accepted", c.drafts_accepted);
  put("drafts_dropped", c.drafts_dropped);
  put("prefix_queries", c.prefix_queries);
  put("prefix_hits", c.prefix_hits);
  put("blocks_allocated", c.blocks_allocated);
  put("blocks_evicted", c.blocks_evicted);
  put("blocks_copied", c.blocks_copied);
  put("tokens_discarded", c.tokens_discarded);
  return d;
}

void bind_blocks(py::module_& module) {
  py::class_<BlockPool>(module, "BlockPool")
      .def(py::init<int32_t>(), py::arg("num_blocks"))
      .def("num_free", &BlockPool::num_free)
      .def("count", &BlockPool::count)
      .def("allocate", &BlockPool::allocate)
      .def("acquire", &BlockPool::acquire)
      .def("release", &BlockPool::release)
      .def("discard", &BlockPool::discard)
      .def("free_list", &BlockPool::free_list)
      .def("check_integrity", &BlockPool::check_integrity);
  module.def(
      "time_alloc_free",
      [](int32_t num_blocks, int64_t iterations) {
        BlockPool pool(num_blocks);
        const auto start = std::chrono::steady_clock::now();
        for (int64_t i = 0; i < iterations; ++i) pool.release(pool.allocate());
        const std::chrono::duration<double, std::nano> spent =
            std::chrono::steady_clock::now() - start;
        if (pool.num_free() != num_blocks) throw std::logic_error("blocks were lost");
        return spent.count() / static_cast<double>(iterations);
      },
      py::arg("num_blocks"), py::arg("iterations"));
  py::class_<PrefixIndex>(module, "PrefixIndex")
      .def(py::init<int32_t, int32_t>(), py::arg("num_blocks"), py::arg("block_size"))
      .def("find",
           [](const PrefixIndex& index, std::pair<uint64_t, uint64_t> hash,
              const Array<int32_t>& tokens) {
             return index.find({hash.first, hash.second}, span_of(tokens).data());
           })
      .def("insert",
           [](PrefixIndex& index, BlockId block, std::pair<uint64_t, uint64_t> hash,
              const Array<int32_t>& tokens) {
             return index.insert(block, {hash.first, hash.second}, span_of(tokens).data());
           })
      .def("erase", &PrefixIndex::erase)
      .def("size", &PrefixIndex::size)
      .def("check_integrity", &PrefixIndex::check_integrity);
}

}  // namespace

void bind_scheduler(py::module_& module) {
  bind_config(module);
  bind_plan(module);
  bind_codes(module);
  bind_blocks(module);
  py::class_<Scheduler>(module, "Scheduler")
      .def(py::init<const SchedulerConfig&>(), py::arg("config"))
      .def("add", &add_request, py::arg("request_id"), py::arg("token_ids").noconvert())
      .def("cancel", &Scheduler::cancel, py::arg("request_id"))
      .def(
          "fork",
          [](Scheduler& scheduler, int64_t parent_id, int64_t child_id, int32_t keep,
             int32_t last_token) {
            return static_cast<int>(scheduler.fork(parent_id, child_id, keep, last_token));
          },
          py::arg("parent_id"), py::arg("child_id"), py::kw_only(), py::arg("keep") = -1,
          py::arg("last_token") = -1)
      .def(
          "renew",
          [](Scheduler& scheduler, const py::int_& client, double until) {
            scheduler.renew(static_cast<int64_t>(bits_of(client)), until);
          },
          py::arg("client"), py::arg("until"))
      .def("propose", &propose_drafts, py::arg("request_ids").noconvert(),
           py::arg("starts").noconvert(), py::arg("tokens").noconvert())
      .def("plan", &Scheduler::plan, py::arg("now"), py::return_value_policy::reference_internal)
      .def(
          "commit",
          [](Scheduler& scheduler, Plan& plan, const Array<int32_t>& tokens,
             const Array<int32_t>& counts, const Array<uint8_t>& ends) -> const Outcome& {
            return scheduler.commit(plan, span_of(tokens), span_of(counts), span_of(ends));
          },
          py::arg("plan"), py::arg("tokens").noconvert(), py::arg("counts").noconvert(),
          py::arg("ends").noconvert(), py::return_value_policy::reference_internal)
      .def("abandon", &Scheduler::abandon, py::arg("plan"))
      .def("max_outstanding_plans",
           [](const Scheduler& scheduler) { return scheduler.config().max_outstanding_plans; })
      .def("num_waiting", &Scheduler::num_waiting)
      .def("num_running", &Scheduler::num_running)
      .def("num_free_blocks", &Scheduler::num_free_blocks)
      .def("blocks_of", &Scheduler::blocks_of, py::arg("request_id"))
      .def("free_list", [](const Scheduler& scheduler) { return scheduler.pool().free_list(); })
      .def("stats", &stats_of)
      .def("prefix_stats",
           [](const Scheduler& scheduler) {
             py::dict d;
             for (const auto& [tag, hits] : scheduler.prefix_stats()) {
               d[py::int_(static_cast<uint64_t>(tag))] = py::make_tuple(hits.queries, hits.hits);
             }
             return d;
           })
      .def("check_integrity", &Scheduler::check_integrity);
}

}  // namespace pagemill
