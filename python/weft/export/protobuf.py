"""The encoding of Protocol Buffers, as far as weft writes it: integers, texts, messages."""

__all__ = ["integer", "message", "optional", "packed", "text", "varint"]

_VARINT, _LENGTH = 0, 2
"""Wire types, behind the number of a field."""


def varint(value: int) -> bytes:
    """Encode an integer of 64 bits, the lowest seven bits first."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    """Encode a field that is an integer."""
    return varint(field << 3 | _VARINT) + varint(value)


def optional(field: int, value: int) -> bytes:
    """Encode an integer that a reader takes for 0 if it is not there."""
    return integer(field, value) if value else b""


def message(field: int, content: bytes) -> bytes:
    """Encode a field that is a message, or any bytes."""
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Encode a field that is a text."""
    return message(field, value.encode(errors="replace"))


def packed(field: int, values: list[int]) -> bytes:
    """Encode a repeated integer."""
    return message(field, b"".join(map(varint, values)))
