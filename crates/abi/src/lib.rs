//! The layout shared by the host and the agent.
#![no_std]
