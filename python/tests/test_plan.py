import json

import numpy as np
import pytest

import ringattn
from ringattn import Layout, Mask, UsageError


def test_plan_is_plain_data_and_counts_every_pair_once():
    plans = [
        ringattn.plan(ranks=5, rank=r, num_heads=2, head_dim=4, mask="causal", seqlen_q=17, layout="zigzag")
        for r in range(5)
    ]
    assert json.loads(json.dumps(plans)) == plans
    assert sum(p["pairs"] for p in plans) == 17 * 18 // 2
    assert all(p["forward_traffic"]["messages"] == 4 for p in plans)
    assert all(p["backward_traffic"]["messages"] == 8 for p in plans)  # K and V, and dK and dV


@pytest.mark.parametrize("kind", ["contiguous", "zigzag", "striped"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("seqlen", [0, 2, 11])
def test_shards_hold_their_positions_and_make_the_whole_again(kind, ranks, seqlen):
    x = np.arange(2 * seqlen * 3).reshape(2, seqlen, 3)
    layout = Layout(kind, seqlen, ranks)
    shards = [ringattn.shard(x, layout, r) for r in range(ranks)]
    for r, part in enumerate(shards):
        assert np.array_equal(part, x[:, ringattn.positions(layout, r)])
    assert np.array_equal(ringattn.unshard(shards, layout), x)


def test_own_segments():
    layout = Layout.custom(5, [[(2, 2, 2)], [(0, 2, 1), (3, 1, 1)]])
    assert layout.positions(0).tolist() == [2, 4] and layout.positions(1).tolist() == [0, 1, 3]


def test_masks_say_what_is_wrong():
    with pytest.raises(UsageError, match="-3"):
        Mask.window(5, left=-3, right=0)
    assert Mask.documents([0, 2, 5]).visible_pairs == 3 + 6
    assert Mask.tiles(4, 4, Mask.causal(4).as_tiles()).visible_pairs == 10
