//! The code cache: memory, blocks, and how addresses of the program and of the clone find each other.

pub mod address_map;
pub mod arena;
pub mod branch_tables;
pub mod emit;
pub mod integrity;
pub mod pages;
pub mod pieces;
pub mod program_state;
pub mod regions;
