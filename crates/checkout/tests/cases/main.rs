//! The crate on real repositories, made by the real git.

#[cfg(test)]
mod g01_bare_hub;
#[cfg(test)]
mod g02_worktrees;
#[cfg(test)]
mod g03_submodules;
#[cfg(test)]
mod g04_ownership;
#[cfg(test)]
mod g05_two_paths;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod k02_repository_key;
#[cfg(test)]
mod layouts;
#[cfg(test)]
mod scratch;
#[cfg(test)]
mod x02_nested;
