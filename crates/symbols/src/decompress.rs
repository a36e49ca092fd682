//! Decompression with a ceiling, so that a small hostile file cannot fill the memory.

use std::io::Read;

use object::elf;

/// The most that one compressed section may become. The debug information of the largest browsers
/// is about half of this.
const SECTION_LIMIT: u64 = 4 << 30;

/// The most that MiniDebugInfo may become; it holds nothing but a symbol table.
const MINI_DEBUG_INFO_LIMIT: u64 = 256 << 20;

/// The memory that the xz decoder may take for its dictionary.
const XZ_MEMORY_LIMIT: u64 = 128 << 20;

/// The most that zlib can gain; what claims to gain more is no zlib stream. Zstandard can gain
/// more, on data that no compiler writes.
const PLAUSIBLE_GAIN: u64 = 1032;

/// The size of the header in front of a compressed section.
const HEADER_SIZE: usize = 24;

/// The contents of a section with `SHF_COMPRESSED`.
pub fn section(compressed: &[u8]) -> Option<Vec<u8>> {
    let (header, stream) = compressed.split_at_checked(HEADER_SIZE)?;
    let method = u32::from_le_bytes(header[0..4].try_into().ok()?);
    let size = u64::from_le_bytes(header[8..16].try_into().ok()?);
    let plausible = (stream.len() as u64).saturating_mul(PLAUSIBLE_GAIN);
    if size > SECTION_LIMIT.min(plausible) {
        return None;
    }
    let bytes = match elf::CompressionType(method) {
        elf::ELFCOMPRESS_ZLIB => read_up_to(flate2::read::ZlibDecoder::new(stream), size)?,
        elf::ELFCOMPRESS_ZSTD => {
            read_up_to(ruzstd::decoding::StreamingDecoder::new(stream).ok()?, size)?
        }
        _ => return None,
    };
    (bytes.len() as u64 == size).then_some(bytes)
}

/// The ELF file inside `.gnu_debugdata`.
pub(crate) fn mini_debug_info(compressed: &[u8]) -> Option<Vec<u8>> {
    let decoder = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_LIMIT, 0).ok()?;
    let reader = liblzma::read::XzDecoder::new_stream(compressed, decoder);
    let bytes = read_up_to(reader, MINI_DEBUG_INFO_LIMIT + 1)?;
    (bytes.len() as u64 <= MINI_DEBUG_INFO_LIMIT).then_some(bytes)
}

fn read_up_to(reader: impl Read, limit: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn zlib_section(claimed_size: u64, contents: &[u8]) -> Vec<u8> {
        let mut section = Vec::new();
        section.extend_from_slice(&elf::ELFCOMPRESS_ZLIB.0.to_le_bytes());
        section.extend_from_slice(&[0; 4]);
        section.extend_from_slice(&claimed_size.to_le_bytes());
        section.extend_from_slice(&1u64.to_le_bytes());
        let mut encoder = flate2::write::ZlibEncoder::new(section, flate2::Compression::best());
        encoder.write_all(contents).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_zlib_section_is_what_was_compressed() {
        assert_eq!(section(&zlib_section(5, b"hello")).as_deref(), Some(&b"hello"[..]));
    }

    #[test]
    fn a_section_that_lies_about_its_size_is_refused() {
        assert_eq!(section(&zlib_section(6, b"hello")), None);
        assert_eq!(section(&zlib_section(1 << 60, b"hello")), None);
        assert_eq!(section(b"short"), None);
    }

    #[test]
    fn mini_debug_info_that_is_no_xz_stream_is_refused() {
        assert_eq!(mini_debug_info(b"not xz at all"), None);
    }
}
