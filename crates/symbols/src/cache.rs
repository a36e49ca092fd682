//! What has been read once is kept on disk, so that it need not be read again.
//!
//! The cache is a convenience. When it cannot be used, for whatever reason, weft works without it
//! and says nothing.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use memmap2::Mmap;

/// What all entries together may take on disk.
const SIZE_LIMIT: u64 = 1 << 30;

/// What names an entry: the build-id where there is one, and a stamp of everything else that the
/// contents depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheKey {
    pub(crate) build_id: String,
    pub(crate) stamp: u64,
}

impl CacheKey {
    fn file_name(&self, extension: &str) -> String {
        format!("{}-{:016x}.{extension}", self.build_id, self.stamp)
    }
}

/// A directory of entries that belongs to this user alone.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: Option<PathBuf>,
}

impl Cache {
    /// The user's own: `$XDG_CACHE_HOME/weft`, or `~/.cache/weft`.
    pub fn of_user() -> Self {
        let absolute = |name| {
            std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute())
        };
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        Self { directory: base.map(|base| base.join("weft").join("symbols")) }
    }

    /// One in a directory of the caller's choice.
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Self { directory: Some(directory.into()) }
    }

    /// None: everything is read anew.
    pub fn disabled() -> Self {
        Self { directory: None }
    }

    /// The entry, when there is one.
    pub(crate) fn load(&self, key: &CacheKey, extension: &str) -> Option<Mmap> {
        let path = self.directory.as_ref()?.join(key.file_name(extension));
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(no_follow).open(path).ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || !is_ours(&metadata) {
            return None;
        }
        // The entries that were used last are the last to be removed.
        let _ = file.set_modified(SystemTime::now());
        // SAFETY: entries are never changed after they have got their name, and only this user,
        // who owns the file, could shorten one.
        unsafe { Mmap::map(&file) }.ok()
    }

    /// Keeps an entry, and makes room for it.
    pub(crate) fn store(&self, key: &CacheKey, extension: &str, bytes: &[u8]) {
        let Some(directory) = &self.directory else { return };
        if bytes.len() as u64 > SIZE_LIMIT / 2 || make_private_directory(directory).is_none() {
            return;
        }
        make_room(directory, SIZE_LIMIT - bytes.len() as u64);
        let name = key.file_name(extension);
        // Other processes and other threads may be about to keep the same.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let temporary = directory.join(format!(".{name}.{}.{count}", std::process::id()));
        let written = write_private(&temporary, bytes)
            .and_then(|()| fs::rename(&temporary, directory.join(name)));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
    }
}

fn is_ours(metadata: &fs::Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw()
}

/// The directory, readable for this user only. Fails in a directory that belongs to somebody else,
/// which is also where `sudo` may find itself: it must not leave files of root there.
fn make_private_directory(directory: &Path) -> Option<()> {
    let existing_parent = directory.ancestors().find(|parent| parent.exists())?;
    if !is_ours(&existing_parent.metadata().ok()?) {
        return None;
    }
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory).ok()?;
    fs::set_permissions(directory, Permissions::from_mode(0o700)).ok()
}

fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

/// Removes the entries that were not used for longest until the others fit.
fn make_room(directory: &Path, limit: u64) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut entries: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .collect();
    let mut total: u64 = entries.iter().map(|(_, size, _)| size).sum();
    entries.sort_unstable();
    for (_, size, path) in entries {
        if total <= limit {
            return;
        }
        if fs::remove_file(path).is_ok() {
            total -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("weft-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn key(stamp: u64) -> CacheKey {
        CacheKey { build_id: "abcd".into(), stamp }
    }

    #[test]
    fn an_entry_comes_back_and_is_private() {
        let scratch = Scratch::new("cache");
        let directory = scratch.0.join("below");
        let cache = Cache::in_directory(&directory);
        assert!(cache.load(&key(1), "syms").is_none());
        cache.store(&key(1), "syms", b"contents");
        assert_eq!(cache.load(&key(1), "syms").as_deref(), Some(&b"contents"[..]));
        assert!(cache.load(&key(2), "syms").is_none());
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
        let entry = fs::read_dir(&directory).unwrap().next().unwrap().unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let scratch = Scratch::new("cache-link");
        fs::write(scratch.0.join("elsewhere"), b"contents").unwrap();
        let link = scratch.0.join(key(1).file_name("syms"));
        std::os::unix::fs::symlink(scratch.0.join("elsewhere"), link).unwrap();
        assert!(Cache::in_directory(&scratch.0).load(&key(1), "syms").is_none());
    }

    #[test]
    fn the_oldest_entries_go_first() {
        let scratch = Scratch::new("cache-room");
        for (age, name) in [(30, "old"), (20, "middle"), (10, "new")] {
            let file = File::create(scratch.0.join(name)).unwrap();
            file.set_len(100).unwrap();
            file.set_modified(SystemTime::now() - std::time::Duration::from_secs(age)).unwrap();
        }
        make_room(&scratch.0, 250);
        let mut left: Vec<_> =
            fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["middle", "new"]);
    }

    #[test]
    fn no_cache_is_no_failure() {
        Cache::disabled().store(&key(1), "syms", b"contents");
        Cache::in_directory("/proc/no/such").store(&key(1), "syms", b"contents");
    }
}
