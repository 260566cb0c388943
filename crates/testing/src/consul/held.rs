//! Resources that a script in hack/ creates and keeps until this process closes the pipe to the script, or ends in any way.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::file;

/// A script that keeps resources. Dropping this removes all of them.
pub struct Held {
    script: Mutex<(Child, Lines<BufReader<ChildStdout>>)>,
}

impl Held {
    /// Runs `hack/SCRIPT hold …`.
    pub fn start(script: &str, arguments: &[&str]) -> Self {
        let path = file(&format!("hack/{script}"));
        let mut child = Command::new(&path)
            .arg("hold")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("hack/{script} starts: {error}"));
        let output = child.stdout.take().expect("its output is piped");
        Self { script: Mutex::new((child, BufReader::new(output).lines())) }
    }

    /// Returns the next line NAME=VALUE that the script prints, or `None` for another line.
    pub fn variable(&self) -> Option<(String, String)> {
        let line = self.script.lock().unwrap_or_else(PoisonError::into_inner).1.next();
        parse(&line.expect("the script has more to say").expect("it can be read"))
    }

    /// Returns all variables that the script prints before another line.
    pub fn variables(&self) -> BTreeMap<String, String> {
        std::iter::from_fn(|| self.variable()).collect()
    }

    /// Sends an order, and returns the value that the script then prints.
    pub fn order(&self, order: &str) -> String {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        let input = script.0.stdin.as_mut().expect("its input is piped");
        writeln!(input, "{order}").expect("the script reads");
        let line = script.1.next().expect("the script answers").expect("it can be read");
        parse(&line).unwrap_or_else(|| panic!("{order}: {line}")).1
    }
}

fn parse(line: &str) -> Option<(String, String)> {
    line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
}

impl Drop for Held {
    fn drop(&mut self) {
        // This first closes the script's input.
        let _ = self.script.get_mut().unwrap_or_else(PoisonError::into_inner).0.wait();
    }
}
