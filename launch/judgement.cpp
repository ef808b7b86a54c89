#include "launch/judgement.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "launch/units.h"

namespace ringattn::launch {

double difference(double got, double want) {
  if (std::isnan(got) || std::isnan(want)) {
    return std::isnan(got) && std::isnan(want) ? 0 : std::numeric_limits<double>::infinity();
  }
  if (got == want) return 0;
  return std::abs(got - want);  // infinite if one of them is
}

void Seen::add(Deviation here, double naive, double magnitude) {
  here.error = difference(here.got, here.want);
  if (here.error > worst.error) worst = here;
  squares += here.error * here.error;
  ++count;
  if (std::isfinite(here.want)) largest = std::max(largest, std::abs(here.want));
  if (std::isfinite(magnitude)) terms = std::max(terms, magnitude);
  // A naive evaluation that overflowed is no yardstick.
  const double error = difference(naive, here.want);
  if (!std::isfinite(error)) return;
  naive_error = std::max(naive_error, error);
  naive_squares += error * error;
  ++naive_count;
}

double error_bound(const Tolerance& tolerance, double naive_error, double largest, double terms) {
  const double half_unit = tolerance.type == DType::f32   ? 0x1p-24
                           : tolerance.type == DType::f16 ? 0x1p-11
                                                          : 0x1p-8;
  return std::max(tolerance.naive_errors * naive_error, half_unit * largest) +
         1e-6 * std::max(largest, terms);
}

Judgement judge(const Tolerance& tolerance, std::span<const Seen> ranks) {
  Judgement all;
  double terms = 0, squares = 0, naive_squares = 0;
  index_t count = 0, naive_count = 0;
  for (const Seen& seen : ranks) {
    if (seen.worst.error > all.worst.error) all.worst = seen.worst;
    all.naive_error = std::max(all.naive_error, seen.naive_error);
    all.largest = std::max(all.largest, seen.largest);
    terms = std::max(terms, seen.terms);
    squares += seen.squares;
    naive_squares += seen.naive_squares;
    count += seen.count;
    naive_count += seen.naive_count;
  }
  const auto root_of_mean = [](double sum, index_t of) {
    return of > 0 ? std::sqrt(sum / static_cast<double>(of)) : 0;
  };
  all.rms_error = root_of_mean(squares, count);
  all.naive_rms_error = root_of_mean(naive_squares, naive_count);
  all.bound = error_bound(tolerance, all.naive_error, all.largest, terms);
  // Nothing compared is not a pass; error is never NaN.
  all.passed = all.worst.error >= 0 && all.worst.error <= all.bound;
  return all;
}

std::string wrong_text(const char* name, const Judgement& judgement, bool with_element) {
  const Deviation& d = judgement.worst;
  const auto text = [](index_t n) { return std::to_string(n); };
  if (d.error < 0) return std::string(name) + ": no row was compared";
  std::string index = "batch " + text(d.batch) + ", row " + text(d.position) + ", head " + text(d.head);
  if (with_element) index += ", element " + text(d.element);
  return std::string(name) + "[" + index + "] is " + number_text(d.got) + ", float64 reference " +
         number_text(d.want) + ": error " + number_text(d.error) + ", bound " + number_text(judgement.bound);
}

}  // namespace ringattn::launch
