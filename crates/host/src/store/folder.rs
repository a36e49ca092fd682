//! The folder of the files.

use crate::{Error, ErrorKind, Result};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};
use weft_abi::stored::{
    CHECKED_FROM, HEADER_LENGTH, LONGEST_CODE, LONGEST_FOLDER, LONGEST_TABLES, SUFFIX,
    StoredHeader, StoredKey, Table, UNMAPPED_USER, sum_of,
};

/// The right of others to write.
const OTHERS_WRITE: u32 = 0o022;
/// What a file is called while it is written.
const DRAFT: &str = ".draft-";
/// When one counts as left behind.
const OLD: Duration = Duration::from_secs(3600);
/// How often it is noted that a file is in use.
const FRESH: Duration = Duration::from_secs(3600);

/// The folder of the files, and how much they may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    path: PathBuf,
    limit: u64,
    /// One that root has prepared for all users, which is only read.
    shared: Option<PathBuf>,
}

/// A file that is kept.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where it is.
    pub path: PathBuf,
    /// How much of the disk it takes.
    pub size: u64,
    /// When it was made, or used; that is noted once an hour.
    pub used: SystemTime,
    /// What it says of itself; `None` if it is damaged, or of another version.
    pub header: Option<StoredHeader>,
    /// The file that it is the clone of.
    pub original: PathBuf,
}

impl Folder {
    /// Opens a folder that only its owner, this user, can write to; makes it if there is none.
    pub fn open(path: &Path, limit: u64, shared: Option<&Path>, is_for_all: bool) -> Result<Self> {
        let mode = if is_for_all { 0o755 } else { 0o700 };
        let made = DirBuilder::new().recursive(true).mode(mode).create(path);
        let status = made.and_then(|()| fs::symlink_metadata(path));
        let status = status.map_err(|error| refused(path, &error.to_string()))?;
        // SAFETY: a plain question.
        let user = unsafe { libc::geteuid() };
        if !status.is_dir() {
            return Err(refused(path, "it is a link, or no folder"));
        }
        if status.uid() != user {
            return Err(refused(path, "it belongs to another user"));
        }
        if status.mode() & OTHERS_WRITE != 0 {
            let advice = format!("chmod go-w {}", path.display());
            return Err(refused(path, "others can write to it").advice(advice));
        }
        if user == UNMAPPED_USER {
            return Err(refused(
                path,
                "this user has no number of its own here, nor have its files",
            ));
        }
        let path = fs::canonicalize(path).map_err(|error| refused(path, &error.to_string()))?;
        if let Some(why) = what_is_wrong_with(&path) {
            return Err(refused(&path, why));
        }
        let shared = shared.filter(|shared| *shared != path && shared.is_dir());
        Ok(Self { path, limit, shared: shared.map(PathBuf::from) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All folders in which a file is looked for.
    pub fn all(&self) -> Vec<&Path> {
        [Some(&self.path), self.shared.as_ref()]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
            .collect()
    }

    fn place(&self, key: &StoredKey) -> PathBuf {
        self.path.join(OsStr::from_bytes(&key.name()))
    }

    /// The file for a key, if there is one that is whole.
    pub fn get(&self, key: &StoredKey) -> Option<(StoredHeader, Vec<u8>)> {
        self.all().into_iter().find_map(|folder| {
            let bytes = read(&folder.join(OsStr::from_bytes(&key.name())))?;
            let header = whole_header(&bytes)?;
            (header.key == *key).then_some((header, bytes))
        })
    }

    /// How many blocks there are in the file for a key, as that says.
    pub fn block_count(&self, key: &StoredKey) -> Option<u64> {
        self.all().into_iter().find_map(|folder| {
            let mut bytes = [0; HEADER_LENGTH];
            let mut file = opened(&folder.join(OsStr::from_bytes(&key.name())))?;
            file.read_exact(&mut bytes).ok()?;
            let header = StoredHeader::from_bytes(&bytes);
            let length = file.metadata().ok()?.len();
            header.is_sound(length).then_some(header.blocks.count)
        })
    }

    /// Keeps a file. Whoever has mapped the one before keeps that.
    pub fn put(&self, key: &StoredKey, bytes: &[u8]) -> std::io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let draft = self.path.join(format!("{DRAFT}{}-{number}", std::process::id()));
        let is_for_all = fs::metadata(&self.path)?.permissions().mode() & 0o004 != 0;
        let mode = if is_for_all { 0o644 } else { 0o600 };
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).mode(mode);
        let written = file.open(&draft).and_then(|file| write(file, bytes));
        let outcome = written.and_then(|()| fs::rename(&draft, self.place(key)));
        if outcome.is_err() {
            let _ = fs::remove_file(&draft);
        }
        outcome
    }

    /// Notes that the file for a key is in use.
    pub fn touch(&self, key: &StoredKey) {
        let Some(file) = opened(&self.place(key)) else { return };
        let age = file.metadata().and_then(|status| status.modified()).map(|at| at.elapsed());
        if matches!(age, Ok(Ok(age)) if age > FRESH) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// All files that are kept, those that were not used for the longest time first.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.files().filter_map(|path| entry(&path)).collect();
        entries.sort_by_key(|entry| entry.used);
        entries
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.named(|name| name.ends_with(SUFFIX))
    }

    /// What is being written, or was left behind.
    fn drafts(&self) -> impl Iterator<Item = PathBuf> {
        self.named(|name| name.starts_with(DRAFT.as_bytes()))
    }

    fn named(&self, is_it: impl Fn(&[u8]) -> bool) -> impl Iterator<Item = PathBuf> {
        let all = fs::read_dir(&self.path).into_iter().flatten().flatten();
        all.filter(move |entry| is_it(entry.file_name().as_bytes())).map(|entry| entry.path())
    }

    /// Deletes what is over the limit, the oldest first, and drafts that were left behind.
    pub fn trim(&self) {
        let status = |path: PathBuf| fs::symlink_metadata(&path).ok().map(|status| (path, status));
        let mut files: Vec<_> = self.files().filter_map(status).collect();
        files.sort_by_key(|(_, status)| status.modified().ok());
        let mut total: u64 = files.iter().map(|(_, status)| size_of(status)).sum();
        for (path, status) in files {
            if total <= self.limit {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= size_of(&status);
            }
        }
        for draft in self.drafts() {
            let status = fs::symlink_metadata(&draft);
            let age = status.and_then(|status| status.modified()).map(|at| at.elapsed());
            if matches!(age, Ok(Ok(age)) if age > OLD) {
                let _ = fs::remove_file(draft);
            }
        }
    }

    /// Deletes all files. Returns how many they were, and how much they took.
    pub fn clear(&self) -> Result<(u64, u64)> {
        let (mut count, mut size) = (0, 0);
        for path in self.files().chain(self.drafts()) {
            let taken = fs::symlink_metadata(&path).map_or(0, |status| size_of(&status));
            match fs::remove_file(&path) {
                Ok(()) => (count, size) = (count + 1, size + taken),
                Err(error) if error.kind() == IoErrorKind::NotFound => {}
                Err(error) => return Err(refused(&path, &error.to_string())),
            }
        }
        Ok((count, size))
    }
}

/// Why engines could not map files of a folder, or not rely on them.
fn what_is_wrong_with(path: &Path) -> Option<&'static str> {
    let name = path.as_os_str().as_bytes();
    let is_noexec = rustix::fs::statvfs(path)
        .is_ok_and(|about| about.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC));
    if name.len() > LONGEST_FOLDER {
        Some("its path is too long")
    } else if name.contains(&b'\n') {
        Some("its path is more than one line")
    } else if is_remote(path) {
        Some("on a network file system another machine may delete what programs run from")
    } else if is_noexec {
        Some("nothing may be executed from its file system (noexec)")
    } else {
        None
    }
}

/// Whether files of a folder may go while they are mapped.
fn is_remote(path: &Path) -> bool {
    /// NFS, SMB of three kinds, 9P, AFS of two kinds, Ceph, Coda, Lustre, FUSE, GFS2, OCFS2: see statfs(2).
    const KINDS: [u32; 13] = [
        0x6969,
        0x517b,
        0xff53_4d42,
        0xfe53_4d42,
        0x0102_1997,
        0x5346_414f,
        0x6b41_4653,
        0x00c3_6400,
        0x7375_7245,
        0x0bd0_0bd0,
        0x6573_5546,
        0x0116_1970,
        0x7461_636f,
    ];
    let kind = rustix::fs::statfs(path).map(|about| about.f_type as u32);
    kind.is_ok_and(|kind| KINDS.contains(&kind))
}

fn refused(path: &Path, why: &str) -> Error {
    let what = format!("{} cannot be used for the code of clones", path.display());
    Error::new(ErrorKind::InvalidArgument, what).why(why)
}

fn write(mut file: File, bytes: &[u8]) -> std::io::Result<()> {
    // What the front and the cold part leave free stays a hole.
    file.set_len(bytes.len() as u64)?;
    for (number, page) in bytes.chunks(4096).enumerate() {
        if page.iter().any(|&byte| byte != 0) {
            use std::os::unix::fs::FileExt;
            file.write_all_at(page, 4096 * number as u64)?;
        }
    }
    file.flush()
}

/// Opens a file to be read. It may be anything: weft is not kept waiting by a pipe.
fn opened(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let file = opened(path)?;
    let most = LONGEST_CODE + LONGEST_TABLES;
    let status = file.metadata().ok().filter(|status| status.is_file() && status.len() <= most)?;
    let mut bytes = Vec::with_capacity(status.len() as usize);
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The header of a file that is whole.
pub fn whole_header(bytes: &[u8]) -> Option<StoredHeader> {
    let header = StoredHeader::from_bytes(bytes.first_chunk::<HEADER_LENGTH>()?);
    if !header.is_sound(bytes.len() as u64) {
        return None;
    }
    let (tables, code) = bytes.split_at(header.tables_length as usize);
    let (front, back) = (&code[..header.hot as usize], &code[header.cold as usize..]);
    (sum_of(&tables[CHECKED_FROM..], front, back) == header.checksum).then_some(header)
}

/// What a file takes of the disk: holes take nothing.
fn size_of(status: &Metadata) -> u64 {
    512 * status.blocks()
}

fn entry(path: &Path) -> Option<Entry> {
    let status = fs::symlink_metadata(path).ok()?;
    let bytes = read(path).unwrap_or_default();
    let header = whole_header(&bytes);
    let original = header.map_or_else(PathBuf::new, |header| {
        let Table { at, count } = header.path;
        PathBuf::from(OsStr::from_bytes(&bytes[at as usize..(at + count) as usize]))
    });
    let used = status.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Some(Entry { path: path.to_owned(), size: size_of(&status), used, header, original })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_abi::stored::Identity;
    use weft_agent::storing::{self, Executed, Extent};

    /// `f: push rbp; mov rbp, rsp; cmp edi, 3; jl +5; call g; pop rbp; ret`, `g: lea eax, [rdi + 1]; ret`
    const CODE: [u8; 21] = [
        0x55, 0x48, 0x89, 0xe5, 0x83, 0xff, 0x03, 0x7c, 0x05, 0xe8, 0x02, 0, 0, 0, 0x5d, 0xc3,
        0x8d, 0x47, 0x01, 0xc3, 0x90,
    ];

    fn key(inode: u64) -> StoredKey {
        let identity = Identity { inode, length: 4096, size: 4096, ..Identity::default() };
        StoredKey { identity, engine: 5, table: 0x7e00_0000, mask: 0x3_ffff }
    }

    fn file(key: StoredKey) -> Vec<u8> {
        let places = [Executed { offset: 0, is_entered: true }];
        let named = (&b"/bin/program"[..], &CODE[..]);
        storing::store(key, named, &places, (1u64 << 30).wrapping_neg(), Extent::Reachable).unwrap()
    }

    /// Numbers that look random, the same each time.
    fn numbers() -> impl FnMut(usize) -> usize {
        let mut last = 1u64;
        move |below| {
            last = last.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (last >> 33) as usize % below
        }
    }

    #[test]
    fn a_file_says_what_it_was_made_for() {
        let bytes = file(key(1));
        let header = whole_header(&bytes).unwrap();
        assert_eq!(header.key, key(1));
        let mut places = storing::places_of(&header, &bytes);
        places.sort_unstable();
        places.dedup();
        let [start, called] = [0, 16].map(|offset| Executed { offset, is_entered: false });
        assert!(places.contains(&start) && places.contains(&called), "{places:?}");
        assert!(places.contains(&Executed { offset: 0, is_entered: true }));
    }

    #[test]
    fn it_is_the_same_each_time() {
        assert_eq!(file(key(1)), file(key(1)));
        assert_ne!(key(1).name(), key(2).name());
    }

    #[test]
    fn no_damage_goes_unseen() {
        let good = file(key(1));
        let header = whole_header(&good).unwrap();
        let mut next = numbers();
        let front = (header.tables_length + header.hot) as usize;
        for _ in 0..20_000 {
            let mut bad = good.clone();
            // Of the code, what is used; the rest is not executed.
            let at = next(front);
            bad[at] ^= 1 << next(8);
            assert_eq!(whole_header(&bad), None, "byte {at}");
        }
        for length in (0..good.len()).step_by(61) {
            assert_eq!(whole_header(&good[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn no_header_leads_beyond_its_file() {
        let good = file(key(1));
        let mut next = numbers();
        let mut sound = 0;
        for _ in 0..100_000 {
            let mut words: Vec<u8> = good[..HEADER_LENGTH].to_vec();
            for _ in 0..=next(3) {
                let at = 8 * next(HEADER_LENGTH / 8);
                let odd = [0, 1, 8, 4096, u64::MAX, 1 << 63, 1 << 32, (next(1 << 30) as u64) << 3];
                words[at..at + 8].copy_from_slice(&odd[next(odd.len())].to_le_bytes());
            }
            let header = StoredHeader::from_bytes(words.first_chunk().unwrap());
            if !header.is_sound(good.len() as u64) {
                continue;
            }
            sound += 1;
            let tables = [
                (header.blocks, 16),
                (header.records, 1),
                (header.pieces, 8),
                (header.places, 12),
                (header.targets, 4),
                (header.path, 1),
                (header.ranges, 8),
            ];
            for (table, size) in tables {
                assert!(table.at + table.count * size <= header.tables_length);
            }
            assert!(header.tables_length + header.cold <= good.len() as u64);
            let mut bad = good.clone();
            bad[..HEADER_LENGTH].copy_from_slice(&words);
            let is_same = words == good[..HEADER_LENGTH];
            assert_eq!(whole_header(&bad).is_some(), is_same);
            storing::places_of(&header, &bad);
        }
        assert!(sound > 200, "{sound}");
    }

    #[test]
    fn sequences_are_seen() {
        let mut code = CODE.to_vec();
        assert!(!storing::may_have_sequences(&code));
        code.extend([0x41, 0xba, 0x53, 0x30, 0x05, 0x53]); // mov r10d, 0x53053053
        assert!(!storing::may_have_sequences(&code));
        code.extend([0x0f, 0xb9, 0x3d, 0x53, 0x30, 0x05, 0x53]);
        assert!(storing::may_have_sequences(&code));
    }

    #[test]
    fn what_was_not_used_goes_first() {
        let path = std::env::temp_dir().join(format!("weft-folder-{}", std::process::id()));
        let size = |folder: &Folder| folder.entries().iter().map(|one| one.size).sum::<u64>();
        let folder = Folder::open(&path, u64::MAX, None, false).unwrap();
        for number in 1..=4 {
            folder.put(&key(number), &file(key(number))).unwrap();
            let file = File::open(folder.place(&key(number))).unwrap();
            let age = Duration::from_secs(86_400 * (10 - number));
            file.set_modified(SystemTime::now() - age).unwrap();
        }
        folder.touch(&key(1));
        let folder = Folder { limit: size(&folder) / 2, ..folder };
        folder.trim();
        let kept: Vec<bool> = (1..=4).map(|number| folder.get(&key(number)).is_some()).collect();
        assert_eq!(kept, [true, false, false, true]);
        assert_eq!(folder.clear().unwrap().0, 2);
        fs::remove_dir(&path).unwrap();
    }
}
