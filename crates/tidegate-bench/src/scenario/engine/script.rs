//! Functions of the script that steps call, and that choose what comes next.

use super::operate::Answer;
use super::worker::Worker;
use crate::clock::monotonic_ns;
use crate::record::Failure;
use crate::scenario::Scenario;
use crate::scenario::page;
use crate::scenario::script::{Call, Given, Purpose, Response, Said, ScriptError};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU16, AtomicU64};
use std::time::Duration;

/// The call that a worker is in, for who waits for the worker.
#[derive(Default)]
pub(super) struct UnderWay {
    /// When it began, monotonic nanoseconds; 0: there is none.
    since: AtomicU64,
    function: AtomicU16,
}

impl UnderWay {
    fn during<T>(&self, function: u16, call: impl FnOnce() -> T) -> T {
        self.function.store(function, Relaxed);
        self.since.store(monotonic_ns(), Release);
        let done = call();
        self.since.store(0, Relaxed);
        done
    }

    /// In words, where there is one.
    pub fn shown(&self, scenario: &Scenario) -> Option<String> {
        let since = Some(self.since.load(Acquire)).filter(|since| *since > 0)?;
        let called = scenario.script.as_ref()?.called(self.function.load(Relaxed));
        let time = Duration::from_nanos(monotonic_ns().saturating_sub(since)).as_secs();
        Some(format!(
            "a call of {called} has been under way for {time} s and cannot be ended; what its users did since is not in the figures"
        ))
    }
}

/// Why an operation fails, in words.
type Reason = (Failure, String);

impl Worker<'_> {
    /// Calls functions in order, with the answer where there is one.
    pub(super) fn call(
        &mut self,
        place: usize,
        calls: &[Call],
        answer: Option<&Answer>,
    ) -> Result<(), Reason> {
        let scenario = self.scenario;
        let Some(script) = &scenario.script else { return Ok(()) };
        for call in calls {
            let said = self.invoke(place, call.function, answer).map_err(of_script)?;
            match &call.purpose {
                Purpose::Check => {
                    let objection = script.objection(call.function, said).map_err(of_script)?;
                    objection.map_or(Ok(()), |reason| Err((Failure::Check, reason)))?;
                }
                Purpose::Fill(variables) => {
                    let values = script.values(call.function, variables, said, &scenario.variables);
                    let values = values.map_err(of_script)?;
                    if let Some(user) = self.users.get_mut(place) {
                        values.into_iter().for_each(|(variable, value)| user.hold_whole(variable, value));
                    }
                }
            }
        }
        Ok(())
    }

    /// What the operation of a user chooses as the next one.
    pub(super) fn choose(&mut self, place: usize) -> Result<(), Reason> {
        let scenario = self.scenario;
        let Some(user) = self.users.get(place) else { return Ok(()) };
        let operation = scenario.operations.get(user.operation);
        let (Some(script), Some(function)) =
            (&scenario.script, operation.and_then(|operation| operation.next))
        else {
            return Ok(());
        };
        let said = self.invoke(place, function, None).map_err(of_script)?;
        if let Some(name) = script.choice(function, said).map_err(of_script)? {
            let Some(next) = scenario.operation(&name) else {
                let what = format!("`{name}`, which is no operation of the scenario");
                return Err(of_script(script.returned(function, what)));
            };
            if let Some(user) = self.users.get_mut(place) {
                user.chosen = u32::try_from(next).ok();
            }
        }
        Ok(())
    }

    fn invoke(&mut self, place: usize, function: u16, answer: Option<&Answer>) -> Result<Said, ScriptError> {
        let scenario = self.scenario;
        let under_way = self.shared.calls.get(self.number as usize);
        let (Some(user), Some(engine), Some(under_way)) =
            (self.users.get_mut(place), &mut self.script, under_way)
        else {
            return Ok(Said::Nothing);
        };
        let mut random = user.random.clone();
        let operation = scenario.operations.get(user.operation);
        let method = user.step_of(scenario).map_or("GET", |step| &step.method);
        let given = Given {
            user: user.number,
            operation: operation.map_or("", |operation| &operation.name),
            vars: user.values(scenario).map(|(name, value)| (name, String::from_utf8_lossy(value))).collect(),
            response: answer.map(|answer| Response {
                status: answer.status,
                headers: page::fields(&answer.head, method),
                body: &answer.body,
            }),
        };
        let call = || engine.call(function, &given, &mut random);
        let said = under_way.during(function, call);
        user.random = random;
        said
    }
}

fn of_script(error: ScriptError) -> Reason {
    (Failure::Script, error.to_string())
}
