//! The code cache: memory for the clone, what is in it, and how addresses of the program and of the clone find each
//! other.

pub mod address_map;
pub mod arena;
pub mod blocks;
pub mod branch_tables;
pub mod code_cache;
pub mod coprocessor;
pub mod emit;
pub mod integrity;
pub mod links;
pub mod marks;
pub mod pages;
pub mod pieces;
pub mod program_state;
pub mod regions;
pub mod sequences;
pub mod store;
pub mod stored;
