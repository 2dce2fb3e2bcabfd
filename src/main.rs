//! The program `relay`: hands the command line to `cli`, or becomes a lane's supervisor or
//! the door of its box.

use std::ffi::OsString;
use std::process::ExitCode;

use relay::{cli, process};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    // Before anything else, so that a supervisor stays a small process with one thread.
    if args.get(1).is_some_and(|arg| arg == process::SUPERVISE) {
        return process::supervisor_main();
    }
    if args.get(1).is_some_and(|arg| arg == process::DOOR) {
        return process::door_main(&args[2..]);
    }
    if args.get(1).is_some_and(|arg| arg == process::KNOCK) {
        return process::knock_main();
    }
    if args.get(1).is_some_and(|arg| arg == cli::DEMO_LANE) {
        return cli::demo_lane_main();
    }
    cli::main(args)
}
