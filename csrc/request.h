// What the scheduler knows of one request.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "block_pool.h"
#include "prefix_index.h"

namespace pagemill {

// Why a request ended. The values are part of the Python interface.
enum class Finish : int32_t {
  kNone = 0,
  kStop = 1,
  kLength = 2,
  kCancelled = 3,
  kDeadline = 4,
  kLease = 5,  // its client's lease ended
};

// Why a request was refused. The values are part of the Python interface.
enum class Refusal : int32_t {
  kNone = 0,
  kTooLong = 1,
  kQueueRequests = 2,
  kQueueTokens = 3,
  kDuplicateId = 4,
  kEmptyPrompt = 5,
  kUnknownParent = 6,
};

enum class RequestState : uint8_t {
  kWaiting,  // in the policy's queue: no slot, no blocks
  kRunning,  // has a slot and blocks for all its known tokens
  kEnded,    // ended while a step refers to it: keeps slot and blocks until that step is over
};

// Place in line: lower goes first. Fixed when the request first queues, so that the order is
// total and a preempted request comes back to its old place.
struct Rank {
  double key = 0;
  int64_t sequence = 0;
  bool operator<(const Rank& other) const {
    return key != other.key ? key < other.key : sequence < other.sequence;
  }
};

// What stands where is measured, not taste: a plan touches the first cache line of each running
// request, a commit the first two, and a block that fills up the third.
struct alignas(64) Request {
  int64_t id = 0;
  uint64_t stop_mask = 0;  // bit t % 64 of each stop token t: most tokens need no further look
  int32_t slot = -1;
  int32_t known = 0;       // verified tokens: prompt and output
  int32_t computed = 0;    // tokens whose K/V exist, or will once the steps in flight have run
  int32_t limit = 0;       // known tokens at which it ends: prompt + max_tokens
  int32_t capacity = 0;    // tokens that its blocks hold
  int32_t tail_base = 0;   // first cache slot of its last block
  int32_t registered = 0;  // leading blocks offered to the prefix index
  int32_t next_hash_at = 0;  // known tokens that complete the next block hash
  int32_t last_token = 0;
  uint16_t epoch = 0;     // rows planned under an older epoch are discarded
  int16_t pending = 0;    // tokens that steps in flight will sample
  uint8_t in_flight = 0;  // outstanding plans with a row of this request
  RequestState state = RequestState::kWaiting;
  bool prefilling : 1 = false;   // running, and its next row is a prompt chunk
  bool multi_step : 1 = true;    // may run several passes a plan
  bool uncertain : 1 = false;    // a step in flight verifies drafts: how many tokens come is open
  bool shared_tail : 1 = false;  // the block that it writes next may have another owner
  bool untold : 1 = false;       // a fork that runs: its next row announces slot and block table
  bool stale_table : 1 = false;  // its next row tells the whole block table again
  bool has_drafts : 1 = false;   // some are proposed for the next plan

  // The newest tokens: token i stands at i % kRecent until settle() takes it to the others.
  static constexpr int32_t kRecent = 16;
  alignas(64) std::array<int32_t, kRecent> recent{};

  alignas(64) std::vector<BlockId> blocks;
  std::vector<BlockHash> hashes;  // of each full block of known tokens
  int32_t known_at_start = 0;     // known tokens when it last got its slot: progress since then
  bool was_preempted = false;

  std::vector<int32_t> tokens;  // the known tokens but for the newest, see settle()
  std::vector<int32_t> stops;
  std::vector<int32_t> drafts;

  Rank rank;
  double arrival = 0;
  double deadline = std::numeric_limits<double>::infinity();
  int64_t priority = 0;
  int64_t tenant = 0;
  int64_t tag = 0;
  int64_t client = 0;
  uint64_t salt = 0;
  int64_t adapter = 0;
  int32_t salt_from = 0;
  int32_t prompt_len = 0;
  bool charged = false;     // fair share: its prompt is paid for
  uint64_t prefix_key = 0;  // prefix grouping: what it shares ...
  int64_t group = -1;       // ... and the ticket it holds

  // Hands the memory of its vectors to `other`, with nothing in them.
  void give_room(Request& other) {
    const auto give = [](auto& from, auto& to) {
      from.clear();
      to.swap(from);
    };
    give(blocks, other.blocks);
    give(hashes, other.hashes);
    give(tokens, other.tokens);
    give(stops, other.stops);
    give(drafts, other.drafts);
  }

  bool is_stop(int32_t token) const {
    return (stop_mask >> (token % 64) & 1) != 0 &&
           std::find(stops.begin(), stops.end(), token) != stops.end();
  }

  // A token is known. True when settle() must follow before the next append().
  bool append(int32_t token) {
    recent[known % kRecent] = token;
    last_token = token;
    return ++known % kRecent == 0;
  }

  // Brings `tokens` up to date.
  void settle() {
    for (auto i = static_cast<int32_t>(tokens.size()); i < known;) {
      const int32_t* const from = recent.data() + i % kRecent;
      const int32_t count = std::min(kRecent - i % kRecent, known - i);
      tokens.insert(tokens.end(), from, from + count);
      i += count;
    }
  }

  // Hashes the full blocks of known tokens that have no hash yet.
  void extend_hashes(int32_t block_size) {
    settle();
    while (next_hash_at <= known) {
      const int32_t first = next_hash_at - block_size;
      BlockHash parent = hashes.empty() ? root_hash(adapter) : hashes.back();
      // The salt enters with the first block that holds a token at or after salt_from.
      const bool enters = first <= salt_from && salt_from < next_hash_at;
      if (salt != 0 && enters) parent = salted(parent, salt);
      hashes.push_back(chained(parent, tokens.data() + first, block_size));
      next_hash_at += block_size;
    }
  }
};

}  // namespace pagemill
