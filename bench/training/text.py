"""What the model reads: real text as bytes, the same on every run and every rank."""

import hashlib
import pathlib

import numpy as np

# On every Debian and Ubuntu, a quarter of a megabyte of English together. In this order.
LICENSES = pathlib.Path("/usr/share/common-licenses")
NAMES = "CC0-1.0 GPL-3 MPL-2.0 Apache-2.0 GFDL-1.3 LGPL-2.1 LGPL-3 GPL-2 MPL-1.1 GPL-1 Artistic LGPL-2 GFDL-1.2"
DEFAULT = [LICENSES / name for name in NAMES.split()]


class Text:
    """The files one after the other. Throws OSError, which names the file that cannot be read."""

    def __init__(self, files):
        data = b"".join(pathlib.Path(file).read_bytes() for file in files)
        self.bytes = np.frombuffer(data, np.uint8)
        self.sha256 = hashlib.sha256(data).hexdigest()

    def batches(self, batch, context, seed):
        """Endless [batch, context + 1] pieces from places that the seed draws: context tokens and one to predict."""
        last = len(self.bytes) - context - 1
        if last < 0:
            raise ValueError(f"--context is {context}, the text has {len(self.bytes)} bytes: at most one less can be used")
        places = np.random.default_rng(seed)
        while True:
            begin = places.integers(0, last + 1, size=(batch, 1))
            yield self.bytes[begin + np.arange(context + 1)].astype(np.int64)
