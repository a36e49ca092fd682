//! `weft._native.Debugger`: a program that a debugger holds.

use crate::cloned::options;
use crate::errors::to_python;
use crate::holding::Holding;
use crate::launching::{Environment, duplicate, launch_of};
use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use weft_debug::debuggee::Debuggee;
use weft_debug::session::Session;
use weft_debug::{Ending, Monitored, Owner, Program, Start, serve};
use weft_host::clone::{CloneOptions, Cloned, while_held};
use weft_host::proc::{self, Tid};
use weft_host::{Error, ErrorKind, Launch, Maker};

/// How often a waiting call looks whether the user has pressed Ctrl-C.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// What was asked of the thread that traces: only that one can do it.
enum Job {
    /// Calls something of Python's while the program stands still.
    Call(Py<PyAny>, Sender<PyResult<Py<PyAny>>>),
    Serve(OwnedFd, Sender<weft_host::Result<Ending>>),
    Detach(Sender<weft_host::Result<()>>),
    Kill(Sender<()>),
}

#[pyclass(frozen, module = "weft._native")]
pub struct Debugger {
    pid: Tid,
    maker: Maker,
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    holding: Holding,
}

/// What to start, as often as it is wanted.
#[derive(Clone)]
struct Recipe {
    command: Vec<OsString>,
    environment: Option<Environment>,
    directory: Option<PathBuf>,
    /// Whether it has the terminal while it runs, and the debugger while it stands still.
    is_apart: bool,
}

impl Recipe {
    fn launch(&self) -> PyResult<Launch> {
        let Self { command, environment, directory, is_apart } = self.clone();
        let launch = launch_of(command, environment, directory, [None; 3])?;
        Ok(Launch { is_fixed: true, is_apart, ..launch })
    }

    /// The same with what the debugger wants to be another.
    fn changed(&self, start: &Start) -> Self {
        let mut recipe = self.clone();
        if start.directory.is_some() {
            recipe.directory.clone_from(&start.directory);
        }
        if !start.variables.is_empty() {
            let before = recipe.environment.unwrap_or_else(|| std::env::vars_os().collect());
            let kept = before.into_iter().filter(|(name, _)| !start.variables.contains_key(name));
            let set = start.variables.iter();
            let set = set.filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
            recipe.environment = Some(kept.chain(set).collect());
        }
        recipe
    }
}

/// Where a program comes from.
enum Origin {
    /// It was started.
    Recipe(Recipe),
    /// It was running.
    Running,
    /// It runs from a clone already, and goes on to when the debugger goes.
    Cloned,
}

/// The engine in the program that is debugged now, to be taken out when that is let go.
type Engine = Rc<RefCell<Option<Cloned>>>;

struct PythonOwner {
    /// Nothing for one that was running already.
    recipe: Option<Recipe>,
    options: CloneOptions,
    engine: Engine,
    terminal: Option<Terminal>,
    /// What is asked and told: see `DebugOwner` in `_native.pyi`.
    owner: Py<PyAny>,
}

impl Owner for PythonOwner {
    fn start_again(&mut self, start: &Start) -> weft_host::Result<Box<dyn Debuggee>> {
        let Some(recipe) = &mut self.recipe else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "weft has not started this program",
            ));
        };
        let program = start.file.as_ref().or(recipe.command.first());
        recipe.command = program.into_iter().chain(&start.words).cloned().collect();
        let launch = recipe
            .changed(start)
            .launch()
            .map_err(|error| Error::new(ErrorKind::LaunchFailed, error.to_string()))?;
        let session = Session::launch(launch, self.options.clone())?;
        let cloned = crate::cloned::Cloned::debugged(session.cloned());
        let mut debuggee = begin(session, &self.engine);
        // It can only fail by what was asked for before, which `monitor weft probes` shows.
        let _ = self.owner_does(Some(&mut *debuggee), "started", (cloned,));
        Ok(debuggee)
    }

    fn runs(&mut self, pid: Tid, is_running: bool) {
        if let Some(terminal) = &self.terminal {
            // A child that is followed is of its parent's job.
            // SAFETY: a plain question.
            let job = unsafe { libc::getpgid(pid) };
            terminal.give_to(if is_running { job } else { terminal.group });
        }
    }

    fn monitor(&mut self, words: &str, program: Option<&mut dyn Debuggee>) -> Monitored {
        let answer = self.owner_does(program, "monitor", (words,));
        let answer =
            answer.and_then(|answer| Python::attach(|py| answer.extract::<(String, bool)>(py)));
        match answer {
            Ok((text, detaches)) => Monitored { text, detaches },
            Err(error) => Monitored { text: format!("{error}\n"), detaches: false },
        }
    }

    fn loads(&mut self, program: &mut dyn Debuggee) {
        // What cannot be measured yet waits.
        let _ = self.owner_does(Some(program), "loaded", ());
    }

    fn leaves(&mut self, program: &mut dyn Debuggee) -> weft_host::Result<()> {
        self.owner_does(Some(program), "leaves", ()).map(drop).map_err(|error| {
            Error::new(ErrorKind::Internal, "the probes could not be taken out")
                .why(error.to_string())
        })
    }
}

impl PythonOwner {
    /// Asks the owner something. If the answer is something to be called, it is called while the program is held, and
    /// what comes of that is the answer.
    fn owner_does(
        &self,
        program: Option<&mut dyn Debuggee>,
        method: &str,
        arguments: impl for<'py> PyCallArgs<'py>,
    ) -> PyResult<Py<PyAny>> {
        let (answer, is_to_be_called) = Python::attach(|py| {
            let answer = self.owner.bind(py).call_method1(method, arguments)?;
            PyResult::Ok((answer.clone().unbind(), answer.is_callable()))
        })?;
        match program {
            Some(program) if is_to_be_called => call_while_held(program, &answer),
            _ if is_to_be_called => Err(gone()),
            _ => Ok(answer),
        }
    }
}

/// Calls something of Python's, which may weave into the program.
fn call_while_held(program: &mut dyn Debuggee, act: &Py<PyAny>) -> PyResult<Py<PyAny>> {
    let held = program.held().map_err(to_python)?;
    while_held(held, || Python::attach(|py| act.call0(py)))
}

#[pymethods]
impl Debugger {
    #[staticmethod]
    #[pyo3(signature = (command, environment, directory, is_apart, cache_size, records, owner))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn launch(
        py: Python<'_>,
        command: Vec<OsString>,
        environment: Option<Environment>,
        directory: Option<PathBuf>,
        is_apart: bool,
        cache_size: Option<u64>,
        records: &str,
        owner: Py<PyAny>,
    ) -> PyResult<Self> {
        let options = options(cache_size, true, false, records)?;
        let recipe = Recipe { command, environment, directory, is_apart };
        let launch = recipe.launch()?;
        let origin = Origin::Recipe(recipe);
        let own = options.clone();
        Self::begin(py, origin, options, owner, move || Session::launch(launch, own))
    }

    #[staticmethod]
    #[pyo3(signature = (pid, cache_size, records, owner))]
    fn attach(
        py: Python<'_>,
        pid: i32,
        cache_size: Option<u64>,
        records: &str,
        owner: Py<PyAny>,
    ) -> PyResult<Self> {
        let options = options(cache_size, true, false, records)?;
        let own = options.clone();
        Self::begin(py, Origin::Running, options, owner, move || Session::attach(pid, own))
    }

    #[staticmethod]
    fn join(
        py: Python<'_>,
        cloned: PyRef<'_, crate::cloned::Cloned>,
        owner: Py<PyAny>,
    ) -> PyResult<Self> {
        let hold = cloned.hold().map_err(to_python)?;
        let options = CloneOptions::default();
        Self::begin(py, Origin::Cloned, options, owner, move || Session::join(hold))
    }

    #[getter]
    fn pid(&self) -> i32 {
        self.pid
    }

    fn call(&self, py: Python<'_>, act: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let (tell, told) = channel();
        self.ask(Job::Call(act, tell))?;
        wait(py, told)?
    }

    fn serve(&self, py: Python<'_>, socket: i32) -> PyResult<(&'static str, i32)> {
        let socket = duplicate(socket)?;
        let (tell, told) = channel();
        self.ask(Job::Serve(socket, tell))?;
        Ok(match wait(py, told)?.map_err(to_python)? {
            Ending::Exited(code) => ("exited", code),
            Ending::Killed(signal) => ("killed", signal.into()),
            Ending::KilledByDebugger => ("ended", 0),
            Ending::Detached => ("detached", 0),
            Ending::HungUp => ("hung up", 0),
        })
    }

    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        let (tell, told) = channel();
        self.ask(Job::Detach(tell))?;
        let outcome = wait(py, told)?.map_err(to_python);
        self.holding.end();
        outcome
    }

    fn kill(&self, py: Python<'_>) -> PyResult<()> {
        let (tell, told) = channel();
        self.ask(Job::Kill(tell))?;
        wait(py, told)?;
        self.holding.end();
        Ok(())
    }
}

impl Debugger {
    fn begin(
        py: Python<'_>,
        origin: Origin,
        options: CloneOptions,
        owner: Py<PyAny>,
        start: impl FnOnce() -> weft_host::Result<Session> + Send + 'static,
    ) -> PyResult<Self> {
        let holding = Holding::begin();
        let (jobs, asked) = channel();
        let (tell, told) = channel();
        let first = owner.clone_ref(py);
        let is_joined = matches!(origin, Origin::Cloned);
        let recipe = if let Origin::Recipe(recipe) = origin { Some(recipe) } else { None };
        let was_attached = recipe.is_none();
        let thread = std::thread::Builder::new().name("weft-debug".into()).spawn(move || {
            let engine = Engine::default();
            let session = match start() {
                Ok(session) => session,
                Err(error) => return drop(tell.send(Err(error))),
            };
            let pid = session.pid();
            let (debuggee, cloned): (Box<dyn Debuggee>, _) = match is_joined {
                true => (Box::new(session), None),
                false => {
                    let cloned = session.cloned();
                    (begin(session, &engine), Some(cloned))
                }
            };
            let _ = tell.send(Ok((pid, cloned)));
            let terminal = recipe.as_ref().filter(|it| it.is_apart).and_then(|_| Terminal::own());
            let mut owner =
                PythonOwner { recipe, options, engine: engine.clone(), terminal, owner };
            let mut program = Program::new(debuggee, was_attached, &mut owner);
            work(&asked, &mut program, &engine);
            if was_attached {
                let _ = let_go(&mut program, &engine);
            } else {
                program.kill();
            }
        })?;
        let (pid, cloned) = wait(py, told)?.map_err(to_python)?;
        if let Some(cloned) = cloned {
            first.call_method1(py, "started", (crate::cloned::Cloned::debugged(cloned),))?;
        }
        let (jobs, thread) = (Mutex::new(Some(jobs)), Mutex::new(Some(thread)));
        Ok(Self { pid, maker: Maker::this(), jobs, thread, holding })
    }

    fn ask(&self, job: Job) -> PyResult<()> {
        self.maker.check().map_err(to_python)?;
        let jobs = self.jobs.lock().map_err(|_| gone())?;
        jobs.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())
    }
}

impl Drop for Debugger {
    fn drop(&mut self) {
        if !self.maker.is_here() {
            // A forked child has no such thread: it is neither to be ended nor to be waited for.
            let thread = self.thread.get_mut().map(Option::take);
            return std::mem::forget(thread);
        }
        // Without anybody who could ask, the thread ends; and with it, what it holds.
        drop(self.jobs.lock().map(|mut jobs| jobs.take()));
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some(thread) = thread {
            Python::attach(|py| py.detach(|| drop(thread.join())));
        }
    }
}

/// The terminal that weft was started from. As in GDB itself, it belongs to the program while that runs, so that Ctrl-C
/// is for it alone, and to the debugger while it does not.
struct Terminal {
    file: File,
    /// The job that has it when the program does not run.
    group: libc::pid_t,
}

impl Terminal {
    /// The terminal, if there is one and it is weft's to give away. For the thread that does so.
    fn own() -> Option<Self> {
        let file = File::open("/dev/tty").ok()?;
        // SAFETY: plain questions.
        let (group, owner) = unsafe { (libc::getpgrp(), libc::tcgetpgrp(file.as_raw_fd())) };
        // Who takes it back is not who has it, and would be stopped for that.
        // SAFETY: a set of signals of this thread's, and the kernel's to read.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGTTOU);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        }
        (group == owner).then_some(Self { file, group })
    }

    fn give_to(&self, group: libc::pid_t) {
        // SAFETY: plain numbers. That it fails means that the group has just ended.
        unsafe { libc::tcsetpgrp(self.file.as_raw_fd(), group) };
    }
}

/// Begins to debug a program.
fn begin(session: Session, engine: &Engine) -> Box<dyn Debuggee> {
    engine.replace(Some(session.cloned()));
    Box::new(session)
}

/// Detaches from the program, and takes the engine out of it.
fn let_go(program: &mut Program<'_>, engine: &Engine) -> weft_host::Result<()> {
    program.detach()?;
    match engine.take() {
        // One that has ended has nothing left of it.
        Some(cloned) if proc::is_alive(cloned.pid()) => cloned.release(),
        _ => Ok(()),
    }
}

/// Does what is asked, one after the other, until nobody can ask any more.
fn work(asked: &Receiver<Job>, program: &mut Program<'_>, engine: &Engine) {
    for job in asked {
        match job {
            Job::Call(act, tell) => {
                let outcome = match program.debuggee() {
                    Some(debuggee) => call_while_held(debuggee, &act),
                    None => Err(gone()),
                };
                let _ = tell.send(outcome);
            }
            Job::Serve(socket, tell) => {
                let mut ending = serve(socket, program);
                if matches!(ending, Ok(Ending::Detached))
                    && let Err(error) = let_go(program, engine)
                {
                    ending = Err(error);
                }
                let _ = tell.send(ending);
            }
            Job::Detach(tell) => drop(tell.send(let_go(program, engine))),
            Job::Kill(tell) => {
                program.kill();
                let _ = tell.send(());
            }
        }
    }
}

/// Waits for an answer, while other Python threads run and signals are heard.
fn wait<T: Send>(py: Python<'_>, mut told: Receiver<T>) -> PyResult<T> {
    loop {
        let answer;
        (answer, told) = py.detach(move || (told.recv_timeout(SIGNAL_CHECK), told));
        match answer {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
        }
    }
}

fn gone() -> PyErr {
    PyRuntimeError::new_err("what holds the program is gone")
}
