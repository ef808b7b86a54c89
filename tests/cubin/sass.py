"""Machine code of sm_90 inside an object that nvcc built, without a disassembler.

An instruction is 16 bytes; its low 12 bits are the opcode with the form of its operands. NVIDIA documents none of this:
the numbers below were found by calibration, from kernels with known counts of each instruction.
"""
import struct

EM_CUDA = 190
OPCODES = {0x9F0: 'QK',  # HGMMA with both operands in shared memory
           0xDF0: 'PV',  # HGMMA with the left operand in registers
           0x308: 'exp',  # MUFU
           0x388: 'store',  # STS
           0x844: 'store matrix',  # STSM
           0x9C5: 'group'}  # WARPGROUP, told apart by the word above
GROUPS = {0x0: 'fence', 0x10000: 'wait<0>', 0x10100: 'wait<1>', 0x10200: 'wait<2>'}


def cubins(path):
    """The ELF images for CUDA in a file. An object holds them as they are if it was built with -no-compress."""
    data = open(path, 'rb').read()
    at = data.find(b'\x7fELF')
    while at >= 0:
        if struct.unpack_from('<H', data, at + 0x12)[0] == EM_CUDA:
            yield data[at:]
        at = data.find(b'\x7fELF', at + 4)


def kernels(path):
    """(name, code) of each kernel."""
    for image in cubins(path):
        table, = struct.unpack_from('<Q', image, 0x28)
        size, count, names_at = struct.unpack_from('<HHH', image, 0x3A)
        sections = [struct.unpack_from('<IIQQQQIIQQ', image, table + i * size) for i in range(count)]
        names = image[sections[names_at][4]:]
        for section in sections:
            name = names[section[0]:names.index(b'\0', section[0])].decode()
            if name.startswith('.text.'):
                yield name[len('.text.'):], image[section[4]:section[4] + section[5]]


def landmarks(code):
    """The instructions of OPCODES in the order of their addresses."""
    for i in range(0, len(code), 16):
        low, high = struct.unpack_from('<QQ', code, i)
        name = OPCODES.get(low & 0xFFF)
        if name == 'group':
            name = GROUPS.get(high & 0xFFFFFFFF, 'group?')
        if name:
            yield name
