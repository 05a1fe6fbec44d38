//! What `/proc` says of a live process.

use std::fs;

/// Bytes in a mebibyte, of the kibibytes that the kernel tells.
const KIB_IN_MIB: f64 = 1024.0;

/// The memory of a process, in MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// What it has now.
    pub(crate) now: f64,
    /// The most that it ever had since its exec.
    pub(crate) peak: f64,
}

/// The memory of a process; nothing when it has ended.
pub(crate) fn memory(pid: u32) -> Option<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(Memory {
        now: field(&text, "VmRSS:")? / KIB_IN_MIB,
        peak: field(&text, "VmHWM:")? / KIB_IN_MIB,
    })
}

/// How often the threads of a process have gone to sleep or were sent to it.
pub(crate) fn context_switches(pid: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok())
        .map(|text| {
            let count = |name| field(&text, name).unwrap_or_default();
            count("voluntary_ctxt_switches:") + count("nonvoluntary_ctxt_switches:")
        })
        .sum()
}

/// When a process started, as the registry of sessions has it: field 22 of `/proc/<pid>/stat`.
pub(crate) fn start_time(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    let (_, rest) = text
        .rsplit_once(") ")
        .expect("a name stands in parentheses");
    let field = rest.split(' ').nth(19);
    field.expect("there are more than 22 fields").to_owned()
}

/// The pid namespace of this process, as in `pid:[4026531836]`.
pub(crate) fn pid_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").expect("a process knows its namespaces");
    link.display().to_string()
}

fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
