//! Functions of the script that steps call, and that choose what comes next.

use super::operate::Answer;
use super::worker::Worker;
use crate::record::Failure;
use crate::scenario::page;
use crate::scenario::script::{Call, Given, Purpose, Response, Said, ScriptError};

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
        let (Some(user), Some(engine)) = (self.users.get_mut(place), &mut self.script) else {
            return Ok(Said::Nothing);
        };
        let mut random = user.random.clone();
        let operation = scenario.operations.get(user.operation);
        let method = user.step_of(scenario).map_or("GET", |step| &step.method);
        let given = Given {
            user: user.number,
            operation: operation.map_or("", |operation| &operation.name),
            vars: user.values(scenario).collect(),
            response: answer.map(|answer| Response {
                status: answer.status,
                headers: page::fields(&answer.head, method),
                body: &answer.body,
            }),
        };
        let said = engine.call(function, &given, &mut random);
        user.random = random;
        said
    }
}

fn of_script(error: ScriptError) -> Reason {
    (Failure::Script, error.to_string())
}
