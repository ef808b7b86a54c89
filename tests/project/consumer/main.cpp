#include <ringattn/ringattn.hpp>

#include <cstdio>
int main() {
  using namespace ringattn;
  const Problem problem{.shape = {.head_dim = 8}, .mask = Mask::causal(5, 5)};
  RingAttention ring(make_self_communicator(), problem, Sharding::make(LayoutKind::contiguous, 5, 5, 1));
  float q[40] = {}, v[40], out[40];
  for (int i = 0; i < 40; ++i)
    v[i] = static_cast<float>(i / 8);  // v[j] = j, equal logits: row i is the mean i / 2
  const auto view = [](auto* data) { return dense_view(data, DType::f32, {1, 5, 1, 8}); };
  ring.forward(view(static_cast<const float*>(q)), view(static_cast<const float*>(q)),
               view(static_cast<const float*>(v)), view(out));
  std::printf("%g %g\n", out[8], out[32]);
  return out[8] == 0.5f && out[32] == 2.0f ? 0 : 1;
}
