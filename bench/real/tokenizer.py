"""Byte-level BPE with the vocabulary and the merges of a GGUF file (GPT-2's scheme, each digit alone)."""

import re


def _byte_letters():
    """GPT-2's one printable letter for every byte: itself where it prints, else one from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in letters)
    letters.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return letters


# Contractions, words, punctuation (each with the blank before it), then blanks: all but the last of a run stay
# together, the last belongs to the next word.
_WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+|\d")


class Tokenizer:
    def __init__(self, tokens, merges):
        self._ids = {token: i for i, token in enumerate(tokens)}
        self._ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self._letters = _byte_letters()
        self._known = {}

    def encode(self, text):
        """Token numbers of the text; no token is added before or after."""
        ids = []
        # Digits are cut out first, so that blanks before a digit are a run of their own.
        for piece in re.split(r"(\d)", text):
            for word in _WORDS.findall(piece):
                ids.extend(self._encode_word(word))
        return ids

    def _encode_word(self, word):
        if word not in self._known:
            parts = [self._letters[byte] for byte in word.encode("utf-8")]
            while len(parts) > 1:
                ranks = [self._ranks.get(pair, len(self._ranks)) for pair in zip(parts, parts[1:])]
                best = min(ranks)
                if best == len(self._ranks):
                    break
                at = ranks.index(best)
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
            self._known[word] = [self._ids[part] for part in parts]
        return self._known[word]
