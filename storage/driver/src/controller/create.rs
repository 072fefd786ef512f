//! CreateVolume.

use std::collections::BTreeMap;

use claimcheck_csi::v1::{self, CreateVolumeRequest, CreateVolumeResponse};

use crate::{
    access::Access,
    driver::Driver,
    error::{Error, Result},
    fields,
    filesystem::FsType,
    mutable::Mutable,
    parameters::{KIND, Kind, Parameters},
    secrets::Call,
    size::SizeRange,
    topology::{Segment, admitted},
    volume::{Source, Volume, VolumeId},
};

impl Driver {
    /// Creates a volume, or returns the one that an earlier call with the same name created.
    ///
    /// The content is created first and the record last: the volume exists from the moment its record does. A
    /// crash in between leaves a directory without a record, and a repeated call starts over in it.
    pub fn create(&self, request: CreateVolumeRequest) -> Result<CreateVolumeResponse> {
        self.config.secrets.check(Call::CreateVolume, &request.secrets)?;
        let name = fields::name(&request.name)?;
        let accesses = Access::parse_all(&request.volume_capabilities)?;
        let kind = Parameters::parse(&request.parameters)?.kind_for(&accesses);
        let size = SizeRange::parse(request.capacity_range)?;
        let source = self.parse_source(request.volume_content_source)?;
        let mutable = Mutable::default().with(&request.mutable_parameters)?;
        for access in &accesses {
            access.check(kind, &self.config.capabilities)?;
        }

        let id = VolumeId::from_name(name);
        let fs_type = accesses.iter().find_map(|access| access.fs_type);
        let segments = match self.config.topology.is_empty() {
            true => vec![Segment::default()],
            false => {
                let requirement = request.accessibility_requirements.as_ref();
                admitted(requirement, &self.segments()?, &self.config.topology)
            }
        };
        // Held until the record counts. Always taken before the volume's own lock.
        let _room = self.config.capacity_bytes.map(|_| self.store.lock_room()).transpose()?;
        // Rejected before the directory is made, so that a wish that cannot come true leaves nothing.
        let (capacity_bytes, topology) = match self.store.load(&id)? {
            Some(present) => (present.capacity_bytes, present.topology),
            None => {
                let fs = fs_type.unwrap_or(FsType::Ext4);
                let max = self.config.max_volume_bytes;
                let bytes = match source.as_ref().map(|source| self.origin(source)).transpose()? {
                    Some(origin) => {
                        origin.check(kind, fs_type)?;
                        size.choose_copy(kind, fs, origin.bytes, max)?
                    }
                    None => size.choose(kind, fs, max)?,
                };
                (bytes, self.choose_segment(&segments, bytes)?)
            }
        };
        if kind == Kind::Image {
            self.host.probe_loop().map_err(Error::NoLoop)?;
        }

        let expected = Volume {
            id,
            name: name.to_owned(),
            kind,
            capacity_bytes,
            fs_type,
            topology,
            source,
            mutable,
            ephemeral: false,
            nodes: BTreeMap::new(),
        };
        let first = self.lock_first(&expected)?;
        let _lock = self.store.lock_or_make(&expected.id)?;
        let volume = match self.store.load(&expected.id)? {
            Some(present) => compatible(present, &expected, &size, &segments)?,
            None => {
                self.make_content(&expected, first).inspect_err(|_| self.discard(&expected.id))?;
                self.store.save(&expected)?;
                expected
            }
        };
        Ok(CreateVolumeResponse { volume: Some(describe(&volume)) })
    }

    /// The first of the segments with enough capacity.
    fn choose_segment(&self, segments: &[Segment], bytes: u64) -> Result<Segment> {
        let mut most = 0;
        for segment in segments {
            match self.room_in(segment)? {
                Some(room) if room < bytes => most = most.max(room),
                _ => return Ok(segment.clone()),
            }
        }
        Err(Error::Exhausted(if segments.is_empty() {
            "accessibility_requirements: no node of this driver is in any of the segments".to_owned()
        } else {
            format!(
                "{bytes} bytes were requested, and {most} are left in the requested topology (--capacity)"
            )
        }))
    }
}

/// The volume as callers see it.
pub(super) fn describe(volume: &Volume) -> v1::Volume {
    v1::Volume {
        capacity_bytes: volume.capacity_bytes.try_into().unwrap_or(i64::MAX),
        volume_id: volume.id.to_string(),
        volume_context: context(volume),
        content_source: volume.source.as_ref().map(Source::to_csi),
        accessible_topology: volume.topology.to_csi().into_iter().collect(),
    }
}

/// The volume context: for readers of a PersistentVolume; the driver uses its record instead.
pub(super) fn context(volume: &Volume) -> BTreeMap<String, String> {
    BTreeMap::from([(KIND.to_owned(), volume.kind.name().to_owned())])
}

/// Whether the existing volume is compatible with the request (CSI specification, CreateVolume Errors).
fn compatible(present: Volume, expected: &Volume, size: &SizeRange, segments: &[Segment]) -> Result<Volume> {
    let Volume { name, .. } = &present;
    let differs = |what: String| Err(Error::AlreadyExists(format!("volume {name:?} already exists {what}")));
    if present.kind != expected.kind {
        return differs(format!("with kind \"{}\", not \"{}\"", present.kind, expected.kind));
    }
    if !size.contains(present.capacity_bytes) {
        return differs(format!(
            "with {} bytes, which is not in the requested range",
            present.capacity_bytes
        ));
    }
    if !present.topology.is_empty() && !segments.contains(&present.topology) {
        return differs(format!("in {}, which is not among the requested segments", present.topology));
    }
    if present.source != expected.source {
        let say = |source: &Option<Source>| source.as_ref().map_or("nothing".to_owned(), Source::to_string);
        return differs(format!("as a copy of {}, not of {}", say(&present.source), say(&expected.source)));
    }
    if present.fs_type != expected.fs_type {
        let say = |fs: Option<FsType>| fs.map_or("no file system named", FsType::name);
        return differs(format!("with {}, not {}", say(present.fs_type), say(expected.fs_type)));
    }
    Ok(present)
}
