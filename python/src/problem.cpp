#include "problem.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "module.h"
#include "src/error.h"

namespace ringattn::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// A tile in Python: (q_begin, q_end, k_begin, k_end, lo, hi); None is a bound that is not there.
using Bound = std::optional<index_t>;
using TileTuple = std::tuple<index_t, index_t, index_t, index_t, Bound, Bound>;
using SegmentTuple = std::tuple<index_t, index_t, index_t>;  // begin, count, stride

Tile tile_of(const TileTuple& t) {
  return {.q = {std::get<0>(t), std::get<1>(t)},
          .k = {std::get<2>(t), std::get<3>(t)},
          .band = {std::get<4>(t).value_or(-kUnbounded), std::get<5>(t).value_or(kUnbounded)}};
}

TileTuple tuple_of(const Tile& t) {
  return {t.q.begin,
          t.q.end,
          t.k.begin,
          t.k.end,
          t.band.lo <= -kUnbounded ? Bound{} : t.band.lo,
          t.band.hi >= kUnbounded ? Bound{} : t.band.hi};
}

void bind_mask(nb::module_& module) {
  nb::class_<Mask>(module, "Mask", "Which keys each query sees, as disjoint tiles in global positions.")
      .def_static(
          "full", [](index_t q, Bound k) { return Mask::full(q, k.value_or(q)); }, "seqlen_q"_a,
          "seqlen_k"_a = nb::none(), "Every query sees every key.")
      .def_static(
          "causal", [](index_t q, Bound k) { return Mask::causal(q, k.value_or(q)); }, "seqlen_q"_a,
          "seqlen_k"_a = nb::none(), "Query i sees keys up to i + seqlen_k - seqlen_q.")
      .def_static(
          "window",
          [](index_t q, Bound k, index_t left, index_t right) {
            return Mask::window(q, k.value_or(q), {.left = left, .right = right});
          },
          "seqlen_q"_a, "seqlen_k"_a = nb::none(), nb::kw_only(), "left"_a, "right"_a,
          "Keys besides the query itself that it sees on each side, inclusive; -1 = no limit.")
      .def_static(
          "documents",
          [](const std::vector<index_t>& cu_q, std::optional<std::vector<index_t>> cu_k, Bound q, Bound k,
             index_t left, index_t right) {
            const std::vector<index_t>& keys = cu_k ? *cu_k : cu_q;
            if (!q && cu_q.empty()) throw UsageError("cu_seqlens_q is empty, it starts with 0");
            if (!k && !q && keys.empty()) throw UsageError("cu_seqlens_k is empty, it starts with 0");
            const index_t seqlen_q = q ? *q : cu_q.back();
            const index_t seqlen_k = k ? *k : (q && !cu_k) ? *q : keys.empty() ? 0 : keys.back();
            return Mask::documents(seqlen_q, seqlen_k, cu_q, keys, {.left = left, .right = right});
          },
          "cu_seqlens_q"_a, "cu_seqlens_k"_a = nb::none(), nb::kw_only(), "seqlen_q"_a = nb::none(),
          "seqlen_k"_a = nb::none(), "left"_a = -1, "right"_a = 0,
          "Packed documents, causal unless left and right say otherwise: document d is queries\n"
          "[cu_seqlens_q[d], cu_seqlens_q[d+1]) and the same of cu_seqlens_k, and sees only itself. "
          "cu_seqlens_k\n"
          "defaults to cu_seqlens_q, lengths to the last offsets; rows past them see nothing.")
      .def_static(
          "tiles",
          [](index_t q, index_t k, const std::vector<TileTuple>& tuples) {
            std::vector<Tile> tiles;
            for (const TileTuple& t : tuples) tiles.push_back(tile_of(t));
            return Mask::tiles(q, k, std::move(tiles));
          },
          "seqlen_q"_a, "seqlen_k"_a, "tiles"_a,
          "Disjoint tiles (q_begin, q_end, k_begin, k_end, lo, hi): key j is visible to query i iff\n"
          "lo <= j - i <= hi; None = no bound.")
      .def_prop_ro("seqlen_q", &Mask::seqlen_q)
      .def_prop_ro("seqlen_k", &Mask::seqlen_k)
      .def_prop_ro("visible_pairs", &Mask::visible_pairs)
      .def_prop_ro("name", &Mask::name)
      .def(
          "as_tiles",
          [](const Mask& mask) {
            std::vector<TileTuple> tuples;
            for (const Tile& t : mask.tiles()) tuples.push_back(tuple_of(t));
            return tuples;
          },
          "The tiles, normalised, in the form that tiles() takes.")
      .def("__repr__", [](const Mask& m) {
        return "<ringattn.Mask " + m.name() + ' ' + std::to_string(m.seqlen_q()) + " x " +
               std::to_string(m.seqlen_k()) + '>';
      });
}

void bind_layout(nb::module_& module) {
  nb::class_<Layout>(module, "Layout", "Which global positions of one sequence each rank holds.")
      .def(
          "__init__",
          [](Layout* self, const std::string& kind, index_t seqlen, int ranks) {
            new (self) Layout(Layout::make(layout_from_name(kind), seqlen, ranks));
          },
          "kind"_a, "seqlen"_a, "ranks"_a)
      .def(
          "__init__",
          [](Layout* self, index_t seqlen, const std::vector<std::vector<SegmentTuple>>& tuples) {
            std::vector<std::vector<Segment>> segments(tuples.size());
            for (std::size_t r = 0; r < tuples.size(); ++r)
              for (const auto& [begin, count, stride] : tuples[r])
                segments[r].push_back({begin, count, stride});
            new (self) Layout(Layout::custom(seqlen, segments));
          },
          "seqlen"_a, "segments"_a)
      .def_prop_ro("kind", [](const Layout& layout) { return std::string(name_of(layout.kind())); })
      .def_prop_ro("seqlen", &Layout::seqlen)
      .def_prop_ro("ranks", &Layout::ranks)
      .def(
          "rows", [](const Layout& layout, int rank) { return layout.rows(rank); }, "rank"_a)
      .def(
          "segments",
          [](const Layout& layout, int rank) {
            std::vector<SegmentTuple> tuples;
            for (const Segment& s : layout.segments(rank)) tuples.emplace_back(s.begin, s.count, s.stride);
            return tuples;
          },
          "rank"_a, "(begin, count, stride) of each segment, in the order of the local rows.");
}

void bind_configuration(nb::module_& module) {
  nb::class_<Configuration>(module, "Configuration")
      .def(
          "__init__",
          [](Configuration* self, const Mask& mask, const Layout& q, const Layout& k, index_t batch,
             index_t heads, index_t heads_kv, index_t dim, index_t dim_v, const std::string& dtype,
             const std::optional<Rope>& rope, std::optional<double> scale) {
            new (self) Configuration{.problem = {.shape = {.batch = batch,
                                                           .num_heads = heads,
                                                           .num_heads_kv = heads_kv,
                                                           .head_dim = dim,
                                                           .head_dim_v = dim_v},
                                                 .dtype = dtype_from_name(dtype),
                                                 .mask = mask,
                                                 .rope = rope.value_or(Rope{}),
                                                 .softmax_scale = scale},
                                     .sharding = {q, k}};
          },
          nb::kw_only(), "mask"_a, "layout_q"_a, "layout_k"_a, "batch"_a, "num_heads"_a, "num_heads_kv"_a,
          "head_dim"_a, "head_dim_v"_a, "dtype"_a, "rope"_a.none(), "softmax_scale"_a.none());
}

}  // namespace

void bind_problem(nb::module_& module) {
  bind_mask(module);
  bind_layout(module);
  nb::class_<Rope>(module, "Rope", "Rotary position embedding, applied to q and k inside the library.")
      .def(
          "__init__",
          [](Rope* self, const std::string& pairing, double base, index_t dim, index_t offset) {
            new (self) Rope{
                .pairing = pairing_from_name(pairing), .base = base, .dim = dim, .position_offset = offset};
          },
          "pairing"_a = "half", nb::kw_only(), "base"_a = 10000.0, "dim"_a = 0, "position_offset"_a = 0,
          "pairing: 'half' (Llama, GPT-NeoX) or 'interleaved' (GPT-J). dim: leading elements of a head that\n"
          "turn, 0 = all. position_offset is added to every position.")
      .def_prop_ro("pairing", [](const Rope& r) { return std::string(name_of(r.pairing)); })
      .def_ro("base", &Rope::base)
      .def_ro("dim", &Rope::dim)
      .def_ro("position_offset", &Rope::position_offset);
  bind_configuration(module);
}

}  // namespace ringattn::python
