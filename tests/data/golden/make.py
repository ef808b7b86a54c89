"""Writes the golden files of this folder with the libraries whose formats we read.

python3 -m pip install numpy ml_dtypes safetensors && python3 make.py
"""
import pathlib

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

here = pathlib.Path(__file__).parent
# [2, 5, 3]: 30 quarters from -3 on, exact in every type.
quarters = (np.arange(30).reshape(2, 5, 3) - 12) / 4

for name, dtype in (("f2", "<f2"), ("f4", "<f4"), ("f8", "<f8")):
    np.save(here / f"numpy_{name}.npy", quarters.astype(dtype))
np.save(here / "ml_dtypes_bf16.npy", quarters.astype(ml_dtypes.bfloat16))
for major in (2, 3):
    with open(here / f"numpy_version_{major}.npy", "wb") as file:
        np.lib.format.write_array(file, quarters.astype("<f4"), version=(major, 0))
# Case A27: [[1, 2, 3], [4, 5, 6]] in Fortran order (payload 1 4 2 5 3 6), and 1.0 in big-endian.
np.save(here / "numpy_fortran_order.npy", np.asfortranarray([[1, 2, 3], [4, 5, 6]], dtype="<f4"))
np.save(here / "numpy_big_endian.npy", np.array([[1.0]], dtype=">f4"))
save_file(
    {
        "q": quarters.astype("<f4"),
        "k": quarters.astype("<f2"),
        "v": quarters.astype(ml_dtypes.bfloat16),
        "ids": np.arange(7, dtype="<i8"),
        "empty": np.zeros((1, 0, 3), "<f4"),
    },
    here / "crate.safetensors",
    metadata={"made by": "safetensors"},
)
