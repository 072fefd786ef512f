//! Fake programs in place of kind and docker, for tests here and of what stands on this.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use nix::{sys::stat::Mode, unistd::mkfifo};

use crate::{Create, Engine, Kind, Store, Teardown, Tools};

/// What `docker info` says where all is well. Nothing is known of its disk: that of a test's machine may be full.
const DOCKER: &str = r#"{"ServerVersion":"28.2.2","CgroupDriver":"systemd","CgroupVersion":"2",
    "MemoryLimit":true,"PidsLimit":true,"CPUShares":true,"SecurityOptions":["name=seccomp,profile=builtin"],
    "DockerRootDir":"/no/such/folder"}"#;

/// A folder with programs on a PATH of its own.
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

    /// As if `KIND_EXPERIMENTAL_PROVIDER` were this.
    pub fn provider(mut self, name: &'static str) -> Self {
        self.provider = Some(name);
        self
    }

    /// A file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where programs are looked for: here alone.
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

    /// What takes clusters down with these.
    pub fn teardown(&self) -> Teardown {
        Teardown::with(Some(self.kind()), self.engine())
    }

    /// Where clusters are noted down.
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

    /// A program does this, in sh, when its first argument is that: `kind create`.
    pub fn rule(&self, call: &str, script: &str) {
        fs::write(self.path("rules").join(call.replace(' ', "-")), script).unwrap();
    }

    /// It does as by itself again.
    pub fn no_rule(&self, call: &str) {
        fs::remove_file(self.path("rules").join(call.replace(' ', "-"))).unwrap();
    }

    /// A program fails with these words.
    pub fn fails(&self, call: &str, words: &str) {
        self.rule(call, &format!("cat >&2 <<'WORDS'\n{words}\nWORDS\nexit 1\n"));
    }

    /// A program gets to [`Fake::hung`] and then hangs, with a child of its own.
    pub fn hangs(&self, call: &str, first: &str) {
        mkfifo(&self.path("hung"), Mode::S_IRWXU).unwrap();
        self.rule(call, &format!("{first}\nsleep 1000 & echo $! >\"$FAKE/hung\"; wait\n"));
    }

    /// Waits until the program hangs; returns the process id of its child.
    pub async fn hung(&self) -> i32 {
        let fifo = self.path("hung");
        let said = tokio::task::spawn_blocking(|| fs::read_to_string(fifo).unwrap()).await.unwrap();
        said.trim().parse().unwrap()
    }

    /// What has been called, one a line; folders of the machine are made out.
    pub fn calls(&self) -> String {
        self.plain(&fs::read_to_string(self.path("log")).unwrap())
    }

    /// A text without folders of this machine.
    pub fn plain(&self, text: &str) -> String {
        text.replace(&self.folder.path().display().to_string(), "[dir]")
    }

    /// The containers of the fake engine, one a line.
    pub fn containers(&self) -> String {
        fs::read_to_string(self.path("containers")).unwrap_or_default()
    }

    /// Gives the fake engine these containers.
    pub fn put_containers(&self, lines: &str) {
        fs::write(self.path("containers"), lines).unwrap();
    }

    /// The networks of the fake engine, one a line.
    pub fn networks(&self) -> String {
        fs::read_to_string(self.path("networks")).unwrap_or_default()
    }
}
