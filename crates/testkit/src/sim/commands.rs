//! The shell's execution of commands: one at a time, each step its own event.

use std::time::Duration;

use earshot_proto::lease::{Command, Decision, Epoch, Input, Permit};

use super::Sabotage;
use super::disk::{Inode, ProcessId};
use super::process::{Answered, Event, Execution, Micros, Request, Step};
use super::world::{MS, World};

/// Requests that wait at a node.
const QUEUE_MAX: usize = 16;
/// How long a database may be locked before a command is answered `unavailable`.
const DATABASE_WAIT: Duration = Duration::from_secs(2);
const RETRY: Micros = 20 * MS;

impl World {
    pub(super) fn receive(&mut self, of: ProcessId, request: Request) {
        let process = &mut self.processes[of];
        let now = process.now(self.time);
        if process.machine.permit(now) == Permit::Moved {
            self.reply(&request, Answered::Moved);
        } else if process.queue.len() >= QUEUE_MAX {
            self.reply(&request, Answered::Unavailable);
        } else {
            process.queue.push_back(request);
            self.start_commands(of);
        }
    }

    pub(super) fn start_commands(&mut self, of: ProcessId) {
        let pause = self.latency();
        self.command_later(of, pause);
    }

    fn command_later(&mut self, of: ProcessId, pause: Micros) {
        let process = &mut self.processes[of];
        let waiting = process.serving && !process.queue.is_empty();
        if !process.executing && (process.execution.is_some() || waiting) {
            process.executing = true;
            self.after(pause, Event::CommandStep(of));
        }
    }

    /// Answers `Moved` to all that wait, and breaks off what runs without an answer.
    pub(super) fn turn_away(&mut self, of: ProcessId) {
        self.processes[of].execution = None;
        self.turn_away_queue(of);
    }

    pub(super) fn turn_away_queue(&mut self, of: ProcessId) {
        for request in std::mem::take(&mut self.processes[of].queue) {
            self.reply(&request, Answered::Moved);
        }
    }

    pub(super) fn take_command_step(&mut self, of: ProcessId) {
        let process = &mut self.processes[of];
        process.executing = false;
        let give_up = process.now(self.time) + DATABASE_WAIT;
        let begun = process.execution.take().map(|running| (running, true));
        let next = begun.or_else(|| {
            let request = process.queue.pop_front()?;
            Some((
                Execution {
                    request,
                    step: Step::Begin,
                    give_up,
                },
                false,
            ))
        });
        let Some((execution, _)) = next else { return };
        let pause = self.command_step(of, execution);
        self.command_later(of, pause);
    }

    /// Takes one step, leaves the next one with the process, and returns when it is due.
    fn command_step(&mut self, of: ProcessId, mut running: Execution) -> Micros {
        let request = running.request;
        let Some(inode) = self.processes[of].databases.get(&request.database).copied() else {
            self.reply(&request, Answered::Moved);
            return self.latency();
        };
        let before = running.step;
        let next = match before {
            Step::Begin => self.begin_command(of, &running, inode),
            Step::Decide { epoch } => self.decide_command(of, &request, inode, epoch),
            Step::Commit { epoch, result } => {
                let apart = self.sabotage == Some(Sabotage::KeyOutsideTransaction);
                let answer = Step::Answer { result };
                let then = if apart {
                    Step::KeyApart { result }
                } else {
                    answer
                };
                self.commit_command(of, &request, inode, (epoch, then))
            }
            Step::KeyApart { result } => self.write_key_apart(of, &request, inode, result),
            Step::CommitStarted { epoch } => {
                let then = Step::EffectOutside { epoch };
                self.commit_command(of, &request, inode, (epoch, then))
            }
            Step::EffectOutside { epoch } => match self.still_holds(of, &request) {
                Some(true) => {
                    self.judge_effect_outside(inode, request.key());
                    Step::BeginFinish { epoch }
                }
                Some(false) => before,
                None => Step::Done,
            },
            Step::BeginFinish { epoch } => {
                if self.database(inode).begin(of) {
                    Step::Finish { epoch }
                } else {
                    before
                }
            }
            Step::Finish { epoch } => self.finish_outside(of, &request, inode, epoch),
            Step::Answer { result } => match self.still_holds(of, &request) {
                Some(true) => {
                    self.answer(of, &request, inode, result);
                    Step::Done
                }
                Some(false) => before,
                None => Step::Done,
            },
            Step::Done => Step::Done,
        };
        let pause = if next == before {
            RETRY
        } else {
            self.latency()
        };
        // What the step led to may have broken the execution off.
        if next != Step::Done && self.processes[of].databases.contains_key(&request.database) {
            running.step = next;
            self.processes[of].execution = Some(running);
        }
        pause
    }

    fn begin_command(&mut self, of: ProcessId, running: &Execution, inode: Inode) -> Step {
        let now = self.processes[of].now(self.time);
        match self.processes[of].machine.permit(now) {
            Permit::Run(epoch) if self.database(inode).begin(of) => {
                self.judge_begin(of);
                Step::Decide { epoch }
            }
            Permit::Run(_) if now >= running.give_up => {
                self.reply(&running.request, Answered::Unavailable);
                Step::Done
            }
            Permit::Run(_) | Permit::Wait => Step::Begin,
            Permit::LookFirst => {
                self.feed(of, Input::LookWanted);
                Step::Begin
            }
            Permit::Moved => {
                self.reply(&running.request, Answered::Moved);
                Step::Done
            }
        }
    }

    /// Says whether what was committed may be acted on: not yet, or, with `None`, never.
    fn still_holds(&mut self, of: ProcessId, request: &Request) -> Option<bool> {
        if self.sabotage == Some(Sabotage::AnswerWithoutLook) {
            return Some(true);
        }
        let now = self.processes[of].now(self.time);
        match self.processes[of].machine.may_answer(now) {
            Permit::Run(_) => Some(true),
            Permit::Wait => Some(false),
            Permit::LookFirst => {
                self.feed(of, Input::LookWanted);
                Some(false)
            }
            Permit::Moved => {
                self.reply(request, Answered::Moved);
                None
            }
        }
    }

    fn decide_command(
        &mut self,
        of: ProcessId,
        request: &Request,
        inode: Inode,
        epoch: Epoch,
    ) -> Step {
        let sabotage = self.sabotage;
        let command = Command {
            n: request.n,
            digest: request.digest,
            idempotent: false,
        };
        let Some(tables) = self.database(inode).writing(of) else {
            return Step::Done;
        };
        let fence = if sabotage == Some(Sabotage::SkipFence) {
            epoch
        } else {
            tables.fence
        };
        let decision = tables.decide(epoch, request.key(), command, fence);
        let answer = match decision {
            Decision::Run if request.outside => {
                tables.mark_started(request.key(), command, request.acked);
                return Step::CommitStarted { epoch };
            }
            Decision::Run => {
                let result = tables.take_effect(request.key());
                if sabotage != Some(Sabotage::KeyOutsideTransaction) {
                    tables.mark_finished(request.key(), command, result, request.acked);
                }
                if sabotage == Some(Sabotage::AcknowledgeBeforeCommit) {
                    self.answer(of, request, inode, result);
                }
                return Step::Commit { epoch, result };
            }
            Decision::Return(result) => {
                self.database(inode).roll_back(of);
                return Step::Answer { result };
            }
            Decision::Conflict => Answered::Conflict,
            Decision::Gone => Answered::Gone,
            Decision::OutcomeUnknown => Answered::OutcomeUnknown,
            Decision::Moved => Answered::Moved,
        };
        self.database(inode).roll_back(of);
        self.reply(request, answer);
        if answer == Answered::Moved {
            self.feed(of, Input::LookWanted);
        }
        Step::Done
    }

    fn commit_command(
        &mut self,
        of: ProcessId,
        request: &Request,
        inode: Inode,
        (epoch, then): (Epoch, Step),
    ) -> Step {
        if self.disk.is_full() {
            self.database(inode).roll_back(of);
            self.reply(request, Answered::Unavailable);
            return Step::Done;
        }
        self.judge_commit(inode, epoch);
        self.database(inode).commit(of);
        self.judge_effects(inode, request.key());
        // Sabotaged, the answer went out before.
        let early = self.sabotage == Some(Sabotage::AcknowledgeBeforeCommit);
        if early && matches!(then, Step::Answer { .. }) {
            Step::Done
        } else {
            then
        }
    }

    fn write_key_apart(
        &mut self,
        of: ProcessId,
        request: &Request,
        inode: Inode,
        result: u64,
    ) -> Step {
        let command = Command {
            n: request.n,
            digest: request.digest,
            idempotent: false,
        };
        if !self.database(inode).begin(of) {
            return Step::KeyApart { result };
        }
        if let Some(tables) = self.database(inode).writing(of) {
            tables.mark_finished(request.key(), command, result, request.acked);
        }
        self.database(inode).commit(of);
        Step::Answer { result }
    }

    fn finish_outside(
        &mut self,
        of: ProcessId,
        request: &Request,
        inode: Inode,
        epoch: Epoch,
    ) -> Step {
        let command = Command {
            n: request.n,
            digest: request.digest,
            idempotent: false,
        };
        let Some(tables) = self.database(inode).writing(of) else {
            return Step::Done;
        };
        if tables.fence != epoch {
            self.database(inode).roll_back(of);
            self.reply(request, Answered::Moved);
            return Step::Done;
        }
        let result = request.n;
        tables.mark_finished(request.key(), command, result, request.acked);
        self.commit_command(of, request, inode, (epoch, Step::Answer { result }))
    }

    fn answer(&mut self, of: ProcessId, request: &Request, inode: Inode, result: u64) {
        self.judge_answer(of, request.key(), inode);
        self.reply(request, Answered::Result(result));
    }

    fn reply(&mut self, request: &Request, answer: Answered) {
        if self.rng.chance(self.weather.loss) {
            return;
        }
        let pause = self.rng.between(50, 20 * MS);
        let Request {
            client, seat, n, ..
        } = *request;
        self.after(
            pause,
            Event::Reply {
                client,
                seat,
                n,
                answer,
            },
        );
    }
}
