use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use earshot_checkout::{
    CommonDirIdentity, RepositoryKey, RepositoryKeys, RepositoryKeysError, common_dir_identity,
    resolve,
};

use crate::scratch::{Mount, Scratch};

const FOLDER: &str = "CHECKOUT_TEST_KEYS_OF";
const SEED: &str = "CHECKOUT_TEST_KEYS_SEED";

/// Repositories, and a data folder beside them.
struct Bench {
    scratch: Scratch,
    keys: RepositoryKeys,
    minted: AtomicU8,
}

impl Bench {
    fn new() -> Self {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("data")).unwrap();
        let keys = RepositoryKeys::new(&scratch.path("data"));
        Self {
            scratch,
            keys,
            minted: AtomicU8::new(0),
        }
    }

    fn identity(&self, name: &str) -> CommonDirIdentity {
        common_dir_identity(&resolve(&self.scratch.path(name)).unwrap()).unwrap()
    }

    fn key(&self, name: &str) -> RepositoryKey {
        self.key_of(&self.identity(name))
    }

    fn key_of(&self, identity: &CommonDirIdentity) -> RepositoryKey {
        let bits = || [self.minted.fetch_add(1, Ordering::SeqCst) + 1; 16];
        self.keys.key_of(identity, bits).unwrap()
    }

    fn minted(&self) -> u8 {
        self.minted.load(Ordering::SeqCst)
    }

    fn file(&self) -> PathBuf {
        self.scratch.path("data/repository-keys")
    }

    fn content(&self) -> String {
        String::from_utf8(fs::read(self.file()).unwrap()).unwrap()
    }
}

#[test]
fn k02_worktrees_share_the_key_of_their_repository() {
    let bench = Bench::new();
    for place in ["a", "b"] {
        fs::create_dir(bench.scratch.path(place)).unwrap();
        bench.scratch.repository(&format!("{place}/api"));
    }
    bench.scratch.git(
        "a/api",
        &["worktree", "add", "--quiet", "-b", "w", "../api-w"],
    );
    fs::create_dir(bench.scratch.path("a/api/src")).unwrap();
    let key = bench.key("a/api");
    assert_eq!(key.to_string(), "01".repeat(16));
    for name in ["a/api-w", "a/api/src", "a/api"] {
        assert_eq!(bench.key(name), key, "{name}");
    }
    // One of the same name elsewhere, and a clone.
    assert_ne!(bench.key("b/api"), key);
    bench.scratch.git(".", &["clone", "--quiet", "a/api", "c"]);
    assert_ne!(bench.key("c"), key);
    assert_eq!(bench.minted(), 3);
}

#[test]
fn k02_a_new_repository_at_an_old_path_does_not_inherit() {
    let bench = Bench::new();
    bench.scratch.repository("api");
    let key = bench.key("api");
    fs::rename(bench.scratch.path("api"), bench.scratch.path("old")).unwrap();
    bench.scratch.repository("api");
    let newcomer = bench.key("api");
    assert_ne!(newcomer, key);
    assert_eq!(bench.key("old"), key);
    // What became of a key stays on file for a person to adopt.
    fs::remove_dir_all(bench.scratch.path("api")).unwrap();
    bench.scratch.repository("api");
    let third = bench.key("api");
    assert_eq!(bench.minted(), 3);
    for key in [key, newcomer, third] {
        assert!(bench.content().contains(&key.to_string()));
    }
}

#[test]
fn k02_a_used_again_inode_does_not_inherit() {
    for place in ["api", "elsewhere"] {
        let bench = Bench::new();
        bench.scratch.repository("api");
        let first = bench.identity("api");
        let key = bench.key("api");
        fs::remove_dir_all(bench.scratch.path("api")).unwrap();
        bench.scratch.repository(place);
        // Most file systems do this by themselves; now and then another test is faster.
        let reused = CommonDirIdentity {
            device: first.device,
            inode: first.inode,
            ..bench.identity(place)
        };
        assert_ne!(bench.key_of(&reused), key, "{place}");
        for unknown in [
            CommonDirIdentity {
                born: None,
                ..reused.clone()
            },
            CommonDirIdentity {
                described: None,
                ..reused
            },
        ] {
            assert_ne!(bench.key_of(&unknown), key, "{place}");
        }
    }
}

#[test]
fn k02_a_first_write_in_a_container_keeps_the_key() {
    let bench = Bench::new();
    let image = bench.scratch.repository("image/api");
    let Some(container) = Mount::overlay(
        image.parent().unwrap(),
        &bench.scratch,
        bench.scratch.path("root"),
    ) else {
        return;
    };
    let (before, key) = (bench.identity("root/api"), bench.key("root/api"));
    bench.scratch.git(
        "root/api",
        &["commit", "--quiet", "--allow-empty", "-m", "next"],
    );
    let after = bench.identity("root/api");
    assert_eq!(
        (after.inode, after.described),
        (before.inode, before.described)
    );
    assert_ne!(
        after.born, before.born,
        "an overlay no longer makes a directory anew"
    );
    assert_eq!(bench.key("root/api"), key);
    // And one that is made there in its place is new.
    fs::remove_dir_all(container.0.join("api")).unwrap();
    bench.scratch.repository("root/api");
    assert_ne!(bench.key("root/api"), key);
}

#[test]
fn g02_a_moved_repository_keeps_its_key() {
    let bench = Bench::new();
    bench.scratch.repository("here");
    let key = bench.key("here");
    for (from, to) in [("here", "there"), ("there", "back"), ("back", "here")] {
        fs::rename(bench.scratch.path(from), bench.scratch.path(to)).unwrap();
        assert_eq!(bench.key(to), key, "{to}");
        let path = format!(" {}\0", bench.scratch.path(to).join(".git").display());
        assert!(bench.content().ends_with(&path), "{:?}", bench.content());
    }
    assert_eq!(bench.minted(), 1);
}

#[test]
fn g02_a_moved_folder_without_git_keeps_its_key() {
    let bench = Bench::new();
    fs::create_dir(bench.scratch.path("notes")).unwrap();
    let identity = bench.identity("notes");
    assert_eq!(
        (identity.described, &identity.path),
        (None, &bench.scratch.path("notes"))
    );
    if identity.born.is_none() {
        eprintln!("SKIPPED: this file system does not know when a folder was made");
        return;
    }
    let key = bench.key("notes");
    fs::rename(&identity.path, bench.scratch.path("papers")).unwrap();
    assert_eq!(bench.key("papers"), key);
    fs::create_dir(&identity.path).unwrap();
    assert_ne!(bench.key("notes"), key);
}

#[test]
fn g02_another_number_of_the_device_keeps_the_key() {
    let bench = Bench::new();
    bench.scratch.repository("disk");
    let key = bench.key("disk");
    let mut identity = bench.identity("disk");
    identity.device += 1;
    assert_eq!(bench.key_of(&identity), key);
    assert!(
        bench
            .content()
            .contains(&format!(" {} {} ", identity.device, identity.inode))
    );
    // A second disk at the same place, whose file system counts its inodes alike.
    bench.scratch.repository("other");
    let other = bench.identity("other");
    let second = CommonDirIdentity {
        born: other.born,
        described: other.described,
        ..identity.clone()
    };
    let newcomer = bench.key_of(&second);
    assert_ne!(newcomer, key);
    assert_eq!(bench.key_of(&identity), key);
    assert_eq!(bench.key_of(&second), newcomer);
}

#[test]
fn g05_a_symlink_and_a_bind_mount_have_the_key_of_the_tree() {
    let bench = Bench::new();
    bench.scratch.repository("real");
    symlink("real", bench.scratch.path("link")).unwrap();
    let key = bench.key("real");
    let content = bench.content();
    assert_eq!(bench.key("link"), key);
    let Some(bind) = Mount::bind(&bench.scratch.path("real"), bench.scratch.path("bind")) else {
        return;
    };
    for name in ["bind", "real", "bind"] {
        assert_eq!(bench.key(name), key, "{name}");
        // The path does not change from one to the other and back.
        assert_eq!(bench.content(), content, "{name}");
    }
    drop(bind);
    assert_eq!(bench.key("real"), key);
}

#[test]
fn g05_a_copy_is_another_repository() {
    let bench = Bench::new();
    bench.scratch.repository("real");
    let key = bench.key("real");
    let copied = Command::new("cp")
        .arg("-a")
        .args([bench.scratch.path("real"), bench.scratch.path("copy")])
        .status();
    assert!(copied.unwrap().success());
    assert_ne!(bench.key("copy"), key);
    assert_eq!(bench.key("real"), key);
}

#[test]
fn k02_a_damaged_file_is_kept_aside_and_its_sound_records_count() {
    let bench = Bench::new();
    bench.scratch.repository("a");
    bench.scratch.repository("b");
    let key = bench.key("a");
    let sound = bench.content();
    let aside = bench.scratch.path("data/repository-keys.damaged");
    for (damage, kept) in [
        (format!("{sound}torn").into_bytes(), true),
        (b"rubbish\0\0\0".to_vec(), false),
        (vec![0; 4_096], false),
        (vec![0xff; 2 << 20], false),
    ] {
        fs::write(bench.file(), &damage).unwrap();
        let other = bench.key("b");
        assert_eq!(bench.key("a") == key, kept);
        assert_eq!(bench.key("b"), other);
        assert_eq!(fs::read(&aside).unwrap(), damage);
        fs::remove_file(&aside).unwrap();
    }
    // A sound file is not set aside, nor written for one who is known.
    assert!(!aside.exists());
}

#[test]
fn k02_the_file_of_a_newer_release_is_left_alone() {
    let bench = Bench::new();
    bench.scratch.repository("a");
    fs::write(bench.file(), "earshot-repository-keys 2\0whatever\0").unwrap();
    let answer = bench.keys.key_of(&bench.identity("a"), || [1; 16]);
    assert!(matches!(answer, Err(RepositoryKeysError::Newer(path)) if path == bench.file()));
    assert_eq!(bench.content(), "earshot-repository-keys 2\0whatever\0");
}

#[test]
fn k02_a_full_file_gives_up_only_what_is_gone() {
    let bench = Bench::new();
    bench.scratch.repository("a");
    bench.scratch.repository("b");
    let (a, b) = (bench.identity("a"), bench.identity("b"));
    for (path, gone) in [(Path::new("/nowhere"), true), (&a.path, false)] {
        let mut content = "earshot-repository-keys 1\0".to_owned();
        let mut records = (1..).map(|number| {
            format!(
                "{number:032x} {} {} {}\0",
                a.device,
                a.inode,
                path.display()
            )
        });
        // What room is left is less than another record needs.
        while let Some(record) = records
            .next()
            .filter(|record| content.len() + record.len() <= 1 << 20)
        {
            content.push_str(&record);
        }
        fs::write(bench.file(), &content).unwrap();
        let answer = bench.keys.key_of(&b, || [0xbb; 16]);
        if gone {
            assert_eq!(answer.unwrap().to_string(), "bb".repeat(16));
            assert!(!bench.content().contains(&format!("{:032x}", 1)));
            assert!(bench.content().contains(&format!("{:032x}", 9)));
        } else {
            assert!(
                matches!(answer, Err(RepositoryKeysError::Full(_))),
                "{answer:?}"
            );
            assert_eq!(bench.content(), content);
        }
    }
}

#[test]
fn k02_the_file_is_the_users_alone() {
    let bench = Bench::new();
    bench.scratch.repository("a");
    bench.key("a");
    for name in ["repository-keys", "repository-keys.lock"] {
        let mode = fs::metadata(bench.scratch.path("data").join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o600, "{name}");
    }
    let nowhere = RepositoryKeys::new(&bench.scratch.path("nowhere"));
    let answer = nowhere.key_of(&bench.identity("a"), || [1; 16]);
    assert!(matches!(answer, Err(RepositoryKeysError::Io(_))));
}

#[test]
fn k02_many_first_callers_get_one_key() {
    let bench = Bench::new();
    bench.scratch.repository("a");
    bench.scratch.repository("b");
    let answers: Vec<_> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let name = ["a", "b"][caller % 2];
                let bench = &bench;
                scope.spawn(move || (name, bench.key(name)))
            })
            .collect();
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .collect()
    });
    for (name, key) in answers {
        assert_eq!(key, bench.key(name), "{name}");
    }
    assert_eq!(bench.minted(), 2);
}

#[test]
fn k02_many_processes_get_one_key() {
    let bench = Bench::new();
    bench.scratch.repository("a");
    let children: Vec<_> = (1..=8)
        .map(|seed| {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args([
                "--exact",
                "k02_repository_key::keys_for_another_process",
                "--nocapture",
            ]);
            child
                .env_clear()
                .env(FOLDER, &bench.scratch.root)
                .env(SEED, seed.to_string());
            child
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let key = bench.key("a");
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let answer = text.split_once("<<").unwrap().1.split_once(">>").unwrap().0;
        assert_eq!(answer.parse(), Ok(key), "{text}");
    }
}

/// Speaks only when [`k02_many_processes_get_one_key`] started it.
#[test]
fn keys_for_another_process() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = PathBuf::from(folder);
        let seed = std::env::var_os(SEED)
            .unwrap()
            .into_string()
            .unwrap()
            .parse::<u8>()
            .unwrap();
        let identity = common_dir_identity(&resolve(&folder.join("a")).unwrap()).unwrap();
        let keys = RepositoryKeys::new(&folder.join("data"));
        println!(
            "<<{}>>",
            keys.key_of(&identity, || [0x80 | seed; 16]).unwrap()
        );
    }
}
