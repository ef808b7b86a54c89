#include "src/mask.h"

#include "src/c_api/convert.h"
#include "src/c_api/handles.h"

using namespace ringattn;
using namespace ringattn::c_api;

ringattn_status ringattn_mask_create_full(int64_t seqlen_q, int64_t seqlen_k, ringattn_mask** mask) {
  return create(mask, "mask", [&] { return Mask::full(seqlen_q, seqlen_k); });
}

ringattn_status ringattn_mask_create_causal(int64_t seqlen_q, int64_t seqlen_k, ringattn_mask** mask) {
  return create(mask, "mask", [&] { return Mask::causal(seqlen_q, seqlen_k); });
}

ringattn_status ringattn_mask_create_window(int64_t seqlen_q, int64_t seqlen_k, int64_t left, int64_t right,
                                            ringattn_mask** mask) {
  return create(mask, "mask", [&] { return Mask::window(seqlen_q, seqlen_k, {left, right}); });
}

ringattn_status ringattn_mask_create_documents(int64_t seqlen_q, int64_t seqlen_k,
                                               const int64_t* cu_seqlens_q, const int64_t* cu_seqlens_k,
                                               size_t documents, int64_t left, int64_t right,
                                               ringattn_mask** mask) {
  return create(mask, "mask", [&] {
    const std::size_t offsets = documents + 1;
    if (offsets == 0) refuse("documents", std::to_string(documents), "that is more than memory can hold");
    return Mask::documents(seqlen_q, seqlen_k, array_of(cu_seqlens_q, offsets, "cu_seqlens_q"),
                           array_of(cu_seqlens_k, offsets, "cu_seqlens_k"), {left, right});
  });
}

ringattn_status ringattn_mask_create_tiles(int64_t seqlen_q, int64_t seqlen_k, const ringattn_tile* tiles,
                                           size_t count, ringattn_mask** mask) {
  return create(mask, "mask", [&] {
    std::vector<Tile> list;
    for (const ringattn_tile& tile : array_of(tiles, count, "tiles")) list.push_back(tile_of(tile));
    return Mask::tiles(seqlen_q, seqlen_k, std::move(list));
  });
}

ringattn_status ringattn_mask_pairs(const ringattn_mask* mask, int64_t* pairs) {
  return guarded([&] {
    const auto object = object_of(mask, "mask");
    require_pointer(pairs, "pairs");
    *pairs = object->visible_pairs();
  });
}

ringattn_status ringattn_mask_destroy(ringattn_mask* mask) { return destroy(mask, "mask"); }
