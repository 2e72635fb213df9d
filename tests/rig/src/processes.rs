//! The processes of the local stack's functions. Only a child of the emulator that runs a function's binary is ever
//! signalled, and it is looked at again just before: a process id alone may have been given to somebody else.

use std::fs;
use std::process::Command;

/// A process of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionProcess {
    pub pid: u32,
    emulator: u32,
    /// Clock tick of its start.
    started: u64,
    /// Name of the function that it runs.
    pub function: String,
}

/// What is sent to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Kill,
    Freeze,
    Thaw,
}

/// All function processes of an emulator.
pub fn all(emulator: u32) -> Vec<FunctionProcess> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|p| p.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| look(pid, emulator)).collect()
}

fn look(pid: u32, emulator: u32) -> Option<FunctionProcess> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Fields after the command's name, which is in brackets: state, parent, …, and the start as the twentieth.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.first() == Some(&"Z") || fields.get(1)?.parse() != Ok(emulator) {
        return None;
    }
    let binary = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    if binary.file_name()? != "bootstrap" {
        return None;
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let name = environment.split(|b| *b == 0).find_map(|v| v.strip_prefix(b"AWS_LAMBDA_FUNCTION_NAME="))?;
    Some(FunctionProcess {
        pid,
        emulator,
        started: fields.get(19)?.parse().ok()?,
        function: String::from_utf8_lossy(name).into_owned(),
    })
}

impl FunctionProcess {
    /// Sends a signal, if the process is still the one that was looked at.
    pub fn send(&self, signal: Signal) -> bool {
        look(self.pid, self.emulator).as_ref() == Some(self) && send(self.pid, signal)
    }
}

/// With the system's own tool: signals of the standard library end processes only.
fn send(pid: u32, signal: Signal) -> bool {
    let name = match signal {
        Signal::Kill => "-KILL",
        Signal::Freeze => "-STOP",
        Signal::Thaw => "-CONT",
    };
    Command::new("kill").args([name, &pid.to_string()]).output().is_ok_and(|done| done.status.success())
}

/// Kills, as the kernel would, the process that holds the connection from `port` to the receiver.
pub fn kill_sender(port: u16) {
    let pid = sender(port).expect("a process holds the connection to the receiver");
    assert!(send(pid, Signal::Kill), "the sender can be killed");
}

/// The same, if it is a function of this emulator.
pub fn kill_function_behind(port: u16, emulator: u32) -> bool {
    sender(port).and_then(|pid| look(pid, emulator)).is_some_and(|process| process.send(Signal::Kill))
}

/// The process that holds the connection from a port of the loopback address.
fn sender(port: u16) -> Option<u32> {
    let sockets = fs::read_to_string("/proc/net/tcp").expect("this test needs Linux");
    let local = format!("0100007F:{port:04X}");
    let lines = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let inode = lines
        .filter(|fields| fields.get(1) == Some(&local.as_str()))
        .find_map(|f| f.get(9).map(ToString::to_string))?;
    let socket = format!("socket:[{inode}]");
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|p| p.file_name().to_str()?.parse::<u32>().ok());
    let mut holders = pids.filter(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.into_iter().any(|f| fs::read_link(f.path()).is_ok_and(|l| l.to_str() == Some(&socket)))
    });
    holders.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_no_child_of_the_emulator_is_not_a_function() {
        let own = std::process::id();
        assert_eq!(look(own, own), None);
        let parent = std::os::unix::process::parent_id();
        assert_eq!(look(own, parent), None, "a child, but not a function's binary");
        let stranger = FunctionProcess { pid: own, emulator: parent, started: 0, function: "f".to_owned() };
        assert!(!stranger.send(Signal::Thaw));
    }

    /// Looks at a child that runs a binary of this name, with the variable of a function.
    fn look_at_child(binary: &str, look: impl FnOnce(u32) -> Option<FunctionProcess>) -> Option<FunctionProcess> {
        let folder = std::env::temp_dir().join(format!("rig-{}-{binary}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::copy("/bin/sleep", folder.join(binary)).unwrap();
        let mut child =
            Command::new(folder.join(binary)).arg("60").env("AWS_LAMBDA_FUNCTION_NAME", "f").spawn().unwrap();
        // The kernel shows its variables a moment after it has started.
        while fs::read(format!("/proc/{}/environ", child.id())).unwrap().is_empty() {
            std::thread::yield_now();
        }
        let found = look(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(folder).unwrap();
        found
    }

    #[test]
    fn only_a_child_of_the_emulator_that_runs_a_functions_binary_is_one() {
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        let found = look_at_child("bootstrap", |pid| {
            assert_eq!(look(pid, parent), None, "of somebody else");
            look(pid, own)
        });
        assert_eq!(found.map(|process| process.function), Some("f".to_owned()));
        assert_eq!(look_at_child("other", |pid| look(pid, own)), None);
    }
}
