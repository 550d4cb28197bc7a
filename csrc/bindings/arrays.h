// NumPy arrays as spans, and back.
#pragma once

#include <pybind11/numpy.h>

#include <span>
#include <vector>

namespace pagemill {

template <typename T>
using Array = pybind11::array_t<T, pybind11::array::c_style>;

template <typename T>
std::span<const T> read(const Array<T>& array) {
  return {array.data(), static_cast<size_t>(array.size())};
}

template <typename T>
std::span<T> write(Array<T>& array) {
  return {array.mutable_data(), static_cast<size_t>(array.size())};
}

template <typename T>
std::vector<T> copy(const Array<T>& array) {
  return {array.data(), array.data() + array.size()};
}

template <typename T>
Array<T> array_of(const std::vector<T>& values) {
  return Array<T>(static_cast<pybind11::ssize_t>(values.size()), values.data());
}

}  // namespace pagemill
