//! What a journal promises, tried on real files with real processes.

#[cfg(test)]
mod commands;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod files;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod left_behind;
#[cfg(test)]
mod model;
#[cfg(test)]
mod scratch;
