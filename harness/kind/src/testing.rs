//! Fake kind and docker programs, for tests of this crate and of its users.

#![expect(clippy::unwrap_used, clippy::new_without_default, reason = "for tests only")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use nix::{sys::stat::Mode, unistd::mkfifo};

use crate::{Create, Engine, Kind, Store, Teardown, Tools};

/// The output of a healthy `docker info`. Without its data directory: the disk of a test machine may be full.
const DOCKER: &str = r#"{"ServerVersion":"28.2.2","CgroupDriver":"systemd","CgroupVersion":"2",
    "MemoryLimit":true,"PidsLimit":true,"CPUShares":true,"SecurityOptions":["name=seccomp,profile=builtin"],
    "DockerRootDir":"/no/such/folder"}"#;

/// A folder with programs and a separate PATH.
pub struct Fake {
    folder: tempfile::TempDir,
    provider: Option<&'static str>,
}

impl Fake {
    /// With these programs.
    pub fn with(programs: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for made in ["bin", "rules"] {
            fs::create_dir(folder.path().join(made)).unwrap();
        }
        // Links, as a program that has just been written may still be open in a child of another test.
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testing.sh");
        for name in programs {
            symlink(&program, folder.path().join("bin").join(name)).unwrap();
        }
        fs::write(folder.path().join("info"), DOCKER).unwrap();
        fs::write(folder.path().join("log"), "").unwrap();
        Self { folder, provider: None }
    }

    /// With `kind` and `docker`.
    pub fn new() -> Self {
        Self::with(&["kind", "docker"])
    }

    /// With this `KIND_EXPERIMENTAL_PROVIDER`.
    pub fn provider(mut self, name: &'static str) -> Self {
        self.provider = Some(name);
        self
    }

    /// A file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The search path of programs: this folder only.
    pub fn tools(&self) -> Tools {
        Tools::on(self.path("bin"), self.provider).with("FAKE", self.folder.path())
    }

    /// The fake engine.
    pub fn engine(&self) -> Engine {
        Engine::find(&self.tools()).unwrap()
    }

    /// The fake kind.
    pub fn kind(&self) -> Kind {
        Kind::find(&self.tools(), &self.engine()).unwrap()
    }

    /// The teardown with these.
    pub fn teardown(&self) -> Teardown {
        Teardown::with(Some(self.kind()), self.engine())
    }

    /// The store of cluster records.
    pub fn store(&self) -> Store {
        Store::at(self.path("state"))
    }

    /// A cluster to create, in files of the claim or of the folder.
    pub fn create(&self, name: &str) -> Create {
        Create {
            name: name.to_owned(),
            config: Some(self.path("config.yaml")),
            image: None,
            kubeconfig: self.path("kubeconfig"),
            retain: true,
            wait: std::time::Duration::from_secs(120),
        }
    }

    /// Sets the behaviour of a program, in sh, for its first argument: `kind create`.
    pub fn rule(&self, call: &str, script: &str) {
        fs::write(self.path("rules").join(call.replace(' ', "-")), script).unwrap();
    }

    /// Restores the default behaviour.
    pub fn no_rule(&self, call: &str) {
        fs::remove_file(self.path("rules").join(call.replace(' ', "-"))).unwrap();
    }

    /// A program fails with this message.
    pub fn fails(&self, call: &str, words: &str) {
        self.rule(call, &format!("cat >&2 <<'WORDS'\n{words}\nWORDS\nexit 1\n"));
    }

    /// A program reaches [`Fake::hung`] and then hangs, with a child process.
    pub fn hangs(&self, call: &str, first: &str) {
        mkfifo(&self.path("hung"), Mode::S_IRWXU).unwrap();
        self.rule(call, &format!("{first}\nsleep 1000 & echo $! >\"$FAKE/hung\"; wait\n"));
    }

    /// Waits until the program hangs; returns the process id of its child.
    pub async fn hung(&self) -> i32 {
        let fifo = self.path("hung");
        let text = tokio::task::spawn_blocking(|| fs::read_to_string(fifo).unwrap()).await.unwrap();
        text.trim().parse().unwrap()
    }

    /// The recorded calls, one per line; folders of the machine are replaced.
    pub fn calls(&self) -> String {
        self.plain(&fs::read_to_string(self.path("log")).unwrap())
    }

    /// A text without folders of this machine.
    pub fn plain(&self, text: &str) -> String {
        text.replace(&self.folder.path().display().to_string(), "[dir]")
    }

    /// The containers of the fake engine, one per line.
    pub fn containers(&self) -> String {
        fs::read_to_string(self.path("containers")).unwrap_or_default()
    }

    /// Gives the fake engine these containers.
    pub fn put_containers(&self, lines: &str) {
        fs::write(self.path("containers"), lines).unwrap();
    }

    /// The networks of the fake engine, one per line.
    pub fn networks(&self) -> String {
        fs::read_to_string(self.path("networks")).unwrap_or_default()
    }
}
