// The products of a packed matrix: which kernel, and which rows and panels to a task.
#include <algorithm>
#include <stdexcept>

#include "cpu/instruction_set.h"
#include "cpu/packed_matrix.h"
#include "cpu/thread_pool.h"

namespace pagemill {
namespace {

// Rows that are worked on together: their activations stay in the second-level cache while the
// panels pass by.
constexpr int32_t kRowBytes = 288 * 1024;
constexpr int32_t kMaxRowsPerTask = 32 * kTileRows;
// The same for rows in tiles: without a second pass over the panels, unless rows are many.
constexpr int32_t kTileRowBytes = 1280 * 1024;
// Several tasks for each thread, so that a thread that is disturbed delays no one.
constexpr int32_t kTasksPerThread = 8;
// Up to so many rows, int8 weights are widened to 16-bit numbers in registers, which is less work
// than rounding them to bfloat16 for tiles.
constexpr int32_t kFewRows = 4;

// Panels of a product's part that are worth a task.
constexpr int32_t kPanelsPerTask = 8;

int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

TileProductKernel tile_kernel() {
  return instruction_set() >= InstructionSet::kAmx ? amx_tile_product() : avx512_tile_product();
}

}  // namespace

const MatrixTileKernels& matrix_kernels() {
  if (instruction_set() >= InstructionSet::kAvx512) return *avx512_matrix_kernels();
  if (instruction_set() >= InstructionSet::kAvx2) return *avx2_matrix_kernels();
  return *portable_matrix_kernels();
}

struct PackedMatrix::Call {
  const MatrixTileKernels& kernels;
  const InputRows& rows;
  const float* bias;
  bool accumulate;
  float* out;
};

RowForm PackedMatrix::row_form(int32_t num_rows) const {
  if (kind_ == WeightKind::kFloat32 || instruction_set() < InstructionSet::kAvx512) {
    return kind_ == WeightKind::kInt8 ? RowForm::kInt16 : RowForm::kFloat32;
  }
  if (kind_ == WeightKind::kBfloat16) return RowForm::kTiles;
  const bool tiles = instruction_set() >= InstructionSet::kAmx && num_rows > kFewRows;
  return tiles ? RowForm::kTiles : RowForm::kInt16;
}

void PackedMatrix::check(const InputRows& rows, const float* out) const {
  // Part of a larger product's rows may have either form.
  const bool known = rows.form() == row_form(1) || rows.form() == row_form(kFewRows + 1);
  if (!known || rows.depth() != depth_) {
    throw std::invalid_argument("the rows were prepared for another matrix");
  }
  if (out == nullptr) throw std::invalid_argument("null pointer");
}

void PackedMatrix::multiply(const InputRows& rows, const float* bias, bool accumulate,
                            float* out) const {
  const int32_t num_rows = rows.num_rows();
  if (num_rows == 0) return;
  check(rows, out);
  if (rows.form() == RowForm::kTiles) return multiply_tiles(rows, bias, accumulate, out, nullptr);
  const auto pool = shared_pool();
  const Call call{matrix_kernels(), rows, bias, accumulate, out};
  const int32_t row_bytes = depth_ * (kind_ == WeightKind::kInt8 ? 2 : 4);
  const int32_t fitting = kRowBytes / row_bytes / kTileRows * kTileRows;
  const int32_t rows_per_task = std::clamp(fitting, kTileRows, kMaxRowsPerTask);
  const int32_t row_groups = ceil_div(num_rows, rows_per_task);
  const int32_t wanted = std::max(1, kTasksPerThread * pool->num_threads() / row_groups);
  const int32_t panels = std::max(1, ceil_div(num_panels_, wanted));
  const int32_t panel_groups = ceil_div(num_panels_, panels);
  pool->run(row_groups * panel_groups, [&](int32_t index, int32_t) {
    const int32_t first_row = index / panel_groups * rows_per_task;
    const int32_t last_row = std::min(num_rows, first_row + rows_per_task);
    const int32_t first_panel = index % panel_groups * panels;
    const int32_t last_panel = std::min(num_panels_, first_panel + panels);
    for (int32_t panel = first_panel; panel < last_panel; ++panel) {
      if (kind_ == WeightKind::kInt8) {
        multiply_int8(call, first_row, last_row, panel);
      } else {
        multiply_float(call, first_row, last_row, panel);
      }
    }
  });
}

void PackedMatrix::multiply_panels(const InputRows& rows, std::span<const int32_t> panels,
                                   float* out) const {
  const int32_t num_rows = rows.num_rows();
  if (num_rows == 0 || panels.empty()) return;
  check(rows, out);
  for (size_t i = 0; i < panels.size(); ++i) {
    if (panels[i] < (i == 0 ? 0 : panels[i - 1] + 1) || panels[i] >= num_panels_) {
      throw std::invalid_argument("panels must be ascending, and the matrix's");
    }
  }
  const bool tiles = rows.form() == RowForm::kTiles;
  const TileProduct product = tile_product(rows, nullptr, false, out, nullptr);
  const Call call{matrix_kernels(), rows, nullptr, false, out};
  const auto one = [&](int32_t panel) {
    if (tiles) {
      tile_kernel()(product, {0, num_rows, panel, panel + 1});
    } else if (kind_ == WeightKind::kInt8) {
      multiply_int8(call, 0, num_rows, panel);
    } else {
      multiply_float(call, 0, num_rows, panel);
    }
  };
  const auto count = static_cast<int32_t>(panels.size());
  const int32_t tasks = ceil_div(count, kPanelsPerTask);
  const auto task = [&](int32_t index, int32_t) {
    const int32_t last = std::min(count, (index + 1) * kPanelsPerTask);
    for (int32_t i = index * kPanelsPerTask; i < last; ++i) one(panels[i]);
  };
  if (tasks == 1) return task(0, 0);
  shared_pool()->run(tasks, task);
}

bool PackedMatrix::multiply_gated(const InputRows& rows, const float* bias,
                                  InputRows& gated) const {
  const bool serves = rows.form() == RowForm::kTiles && gated.form() == RowForm::kTiles &&
                      instruction_set() >= InstructionSet::kAmx && outputs_ % (4 * kPanelColumns) == 0;
  if (!serves) return false;
  if (rows.depth() != depth_ || gated.depth() != outputs_ / 2 ||
      gated.num_rows() != rows.num_rows()) {
    throw std::invalid_argument("the rows were prepared for another matrix");
  }
  if (rows.num_rows() > 0) multiply_tiles(rows, bias, false, nullptr, gated.tiles());
  return true;
}

TileProduct PackedMatrix::tile_product(const InputRows& rows, const float* bias, bool accumulate,
                                       float* out, uint16_t* gated) const {
  const bool int8 = kind_ == WeightKind::kInt8;
  return {rows.tiles(),
          rows.num_rows(),
          depth_,
          int8 ? nullptr : bfloat16_.data(),
          int8 ? int8_.data() : nullptr,
          factors_.data(),
          int8 ? scales_.data() : nullptr,
          outputs_,
          bias,
          accumulate,
          out,
          gated};
}

void PackedMatrix::multiply_tiles(const InputRows& rows, const float* bias, bool accumulate,
                                  float* out, uint16_t* gated) const {
  const auto pool = shared_pool();
  const int32_t num_rows = rows.num_rows();
  const TileProduct product = tile_product(rows, bias, accumulate, out, gated);
  const TileProductKernel kernel = tile_kernel();
  const int32_t fitting = std::max(kRowTileHeight, kTileRowBytes / 2 / depth_);
  const int32_t groups = ceil_div(num_rows, fitting);
  const int32_t rows_per_task = ceil_div(ceil_div(num_rows, groups), kRowTileHeight) * kRowTileHeight;
  const int32_t row_groups = ceil_div(num_rows, rows_per_task);
  // An even number of panels, as tiles take two at a time.
  const int32_t wanted = std::max(1, kTasksPerThread * pool->num_threads() / row_groups);
  const int32_t num_panels = gated == nullptr ? num_panels_ : num_panels_ / 2;
  const int32_t panels = ceil_div(ceil_div(num_panels, wanted), 2) * 2;
  const int32_t panel_groups = ceil_div(num_panels, panels);
  pool->run(row_groups * panel_groups, [&](int32_t index, int32_t) {
    const int32_t first_row = index / panel_groups * rows_per_task;
    const int32_t first_panel = index % panel_groups * panels;
    kernel(product, {first_row, std::min(num_rows, first_row + rows_per_task), first_panel,
                     std::min(num_panels, first_panel + panels)});
  });
}

void PackedMatrix::multiply_float(const Call& call, int32_t first_row, int32_t last_row,
                                  int32_t panel) const {
  alignas(32) float sums[kTileRows * kPanelColumns];
  const int64_t start = panel * panel_elements();
  const float* float32 = kind_ == WeightKind::kFloat32 ? float32_.data() + start : nullptr;
  if (kind_ == WeightKind::kBfloat16 && last_row - first_row > kTileRows) {
    thread_local AlignedVector<float> wide;
    if (static_cast<int64_t>(wide.size()) < panel_elements()) wide.resize(panel_elements());
    call.kernels.widen_pairs(bfloat16_.data() + start, depth_ / 2, wide.data());
    float32 = wide.data();
  }
  // Tiles of nearly equal height: a tile of one or two rows costs as much as one of four.
  const int32_t tiles = ceil_div(last_row - first_row, kTileRows);
  for (int32_t tile = 0, row = first_row; tile < tiles; ++tile) {
    const int32_t count = ceil_div(last_row - row, tiles - tile);
    if (float32 != nullptr) {
      call.kernels.float32(call.rows.float32(row), depth_, float32, depth_, count, sums,
                           kPanelColumns);
    } else {
      call.kernels.bfloat16(call.rows.float32(row), depth_, bfloat16_.data() + start, depth_,
                            count, sums, kPanelColumns);
    }
    store_tile(call, sums, row, count, panel);
    row += count;
  }
}

const int16_t* PackedMatrix::widen_int8(const Call& call, int32_t panel) const {
  thread_local AlignedVector<int16_t> wide;
  if (static_cast<int64_t>(wide.size()) < panel_elements()) wide.resize(panel_elements());
  const int8_t* source = int8_.data() + panel * panel_elements();
  const uint8_t* factors = factors_.data() + int64_t{panel} * depth_ / kGroup * kPanelColumns;
  for (int32_t group = 0; group < depth_ / kGroup; ++group) {
    const int64_t place = int64_t{group} * kGroup * kPanelColumns;
    call.kernels.widen_int8(source + place, kGroup / 2, factors + group * kPanelColumns,
                            wide.data() + place);
  }
  return wide.data();
}

// Section by section, so that a section of the widened panel stays in the first-level cache while
// all rows pass over it.
void PackedMatrix::multiply_int8(const Call& call, int32_t first_row, int32_t last_row,
                                 int32_t panel) const {
  const int32_t num_rows = last_row - first_row, first_output = panel * kPanelColumns;
  const bool whole = first_output + kPanelColumns <= outputs_;
  float* out = call.out + int64_t{first_row} * outputs_ + first_output;
  int64_t out_stride = outputs_;
  thread_local AlignedVector<float> buffer;  // for the last columns of a width that isn't 16's
  if (!whole) {
    buffer.resize(static_cast<size_t>(num_rows) * kPanelColumns);
    out = buffer.data();
    out_stride = kPanelColumns;
  }
  alignas(32) int32_t exact[kTileRows * kPanelColumns];
  const int16_t* wide = widen_int8(call, panel);
  const float* scales = scales_.data() + first_output;
  const int32_t tiles = ceil_div(num_rows, kTileRows);
  for (int32_t first = 0; first < depth_; first += kSection) {
    const int32_t inputs = std::min(kSection, depth_ - first);
    const bool accumulate = first > 0 || (whole && call.accumulate);
    for (int32_t tile = 0, row = 0; tile < tiles; ++tile) {
      const int32_t count = ceil_div(num_rows - row, tiles - tile);
      call.kernels.int16(call.rows.int16(first_row + row) + first, depth_,
                         wide + int64_t{first} * kPanelColumns, 2 * kPanelColumns, inputs / 2,
                         count, exact);
      call.kernels.scale_sums(exact, scales, call.rows.scales(first_row + row), count, accumulate,
                              out + row * out_stride, out_stride);
      row += count;
    }
  }
  if (!whole) {
    store_tile(call, out, first_row, num_rows, panel);
  } else if (call.bias != nullptr) {
    for (int32_t row = 0; row < num_rows; ++row, out += out_stride) {
      for (int32_t j = 0; j < kPanelColumns; ++j) out[j] += call.bias[first_output + j];
    }
  }
}

void PackedMatrix::store_tile(const Call& call, const float* sums, int32_t first_row,
                              int32_t num_rows, int32_t panel) const {
  const int32_t first_output = panel * kPanelColumns;
  const int32_t columns = std::min(kPanelColumns, outputs_ - first_output);
  const float* bias = call.bias == nullptr ? nullptr : call.bias + first_output;
  for (int32_t i = 0; i < num_rows; ++i, sums += kPanelColumns) {
    float* target = call.out + int64_t{first_row + i} * outputs_ + first_output;
    if (columns == kPanelColumns) {
      call.kernels.store(sums, bias, call.accumulate, target);
      continue;
    }
    for (int32_t j = 0; j < columns; ++j) {
      const float value = sums[j] + (bias != nullptr ? bias[j] : 0.0f);
      target[j] = call.accumulate ? target[j] + value : value;
    }
  }
}

}  // namespace pagemill
