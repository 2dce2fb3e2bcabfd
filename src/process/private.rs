//! Keeping this process's memory and environment to itself.

use std::io;

/// From now on no other process of the same user may trace this one, take its descriptors or read
/// its environment: a lane without a process namespace runs as the worker's user, and the worker
/// holds the forge's token. It also leaves no core file. What it starts is not concerned.
///
/// # Errors
/// Where the system refuses.
pub fn keep_private() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}
