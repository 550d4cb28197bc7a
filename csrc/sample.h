// Drawing one of some ids by their logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pagemill {

struct Draw {
  float temperature;  // above 0
  float top_p;        // in (0, 1]
  double uniform;     // in [0, 1)
};

// Draws one of `ids` by inverting the distribution function at `uniform`: the probabilities of
// logits / temperature in descending order, the lower id first among equals, of which the smallest
// set is kept whose mass reaches top_p (Holtzman et al. 2020, "The curious case of neural text
// degeneration"). Ids whose logit is NaN or minus infinity are never drawn while there are others.
// -1 when there are no ids.
int32_t draw(const float* logits, std::span<const int32_t> ids, const Draw& by);

}  // namespace pagemill
