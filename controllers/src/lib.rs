//! The storage controllers: binder, provisioner, attach/detach, attacher, scheduler, protection
