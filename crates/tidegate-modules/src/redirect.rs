//! redirect
