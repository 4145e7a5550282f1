//! The content of a stored response, shared by whoever fills it and all who read it.
//!
//! Bytes lie in blocks of 64 KiB; what is smaller, and known to be, has one block of its own size. One thread appends, many
//! read behind the watermark. While it is filled, reading copies under a shared lock, once it is complete under none.
//!
//! A large content that was read in from a disk stays in its file, and has no block.
//!
//! A content whose origin breaks off may be kept as a part, and gone on with later: the bytes from the first one on, of a length that
//! is known. Who reads no further than that reads it as any other.
//!
//! A content that is passed on keeps no more blocks than a window: the first is used again when all readers are beyond it. Where a disk
//! gets it as well (`backing`), the first is used again when the disk has it, and who is behind reads from there.
//!
//! What is small, and known to be, has memory of all; what has more than a block, of a share of it ([`Share`]). Whoever reads it from memory holds it, and
//! how much is held is counted ([`Content::hold`]).
//!
//! Locks: `filling` and `waiting`, never both. The watermark and the state are changed before `waiting` is taken to wake those who
//! wait, and looked at again by who has put down its waker there: no wake-up is lost.

mod block;
mod holding;
mod seats;

use crate::backing::{Backing, InFile};
use crate::budget::Reservation;
use crate::reader::Reader;
use crate::stored_file::StoredFile;
use rustix::io::Errno;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};
use tidegate_io::file_memory::FileRun;
use tidegate_io::locking::lock;
use tidegate_io::shared_bytes::{SharedBytes, SharedPiece};

pub(crate) use block::{BLOCK, BLOCK_COST, Block, capacity_for};
use holding::Holding;
pub use holding::Sent;
use seats::Waiting;

/// Blocks that a content which is passed on may use.
const WINDOW: usize = 4;
const FILLING: u8 = 0;
const COMPLETE: u8 = 1;
const BROKEN: u8 = 2;
const PART: u8 = 3;

/// The content of a stored response: bytes that one fills and many read.
pub struct Content {
    announced: Option<u64>,
    /// The watermark.
    filled: AtomicU64,
    state: AtomicU8,
    /// Some of it has been, or will be, let go of.
    is_passing: AtomicBool,
    /// Nothing is let go of that a disk does not have.
    is_spooled: AtomicBool,
    holding: Holding,
    /// What was there before the fill began.
    base: u64,
    whole: OnceLock<VecDeque<Block>>,
    /// Where all of it lies, or the part of it that there is, in place of blocks.
    file: Option<StoredFile>,
    /// What a disk has of it while it is passed on.
    backing: OnceLock<Backing>,
    filling: RwLock<VecDeque<Block>>,
    waiting: Mutex<Waiting>,
}

type Wakers = SmallVec<[Waker; 4]>;

/// What a reader gets.
pub(crate) enum Got {
    Bytes(usize),
    /// It is to be read from a file.
    InFile(InFile),
}

/// What reading comes to.
enum Copied {
    Bytes(usize),
    /// It is no longer in memory, but in the file behind it.
    InFile,
    /// Nothing is here yet.
    Nothing,
    End,
    Lost,
}

impl Content {
    pub(crate) fn new(announced: Option<u64>) -> Content {
        Content {
            announced,
            filled: AtomicU64::new(0),
            state: AtomicU8::new(FILLING),
            is_passing: AtomicBool::new(false),
            is_spooled: AtomicBool::new(false),
            holding: Holding::default(),
            base: 0,
            whole: OnceLock::new(),
            file: None,
            backing: OnceLock::new(),
            filling: RwLock::new(VecDeque::with_capacity(1)),
            waiting: Mutex::default(),
        }
    }

    /// One that is complete, in a file.
    pub(crate) fn of_file(file: StoredFile) -> Content {
        let len = file.len();
        let state = AtomicU8::new(COMPLETE);
        Content { filled: AtomicU64::new(len), state, file: Some(file), ..Content::new(Some(len)) }
    }

    /// A part, the first `filled` bytes, in a file.
    pub(crate) fn part_in_file(file: StoredFile, filled: u64) -> Content {
        let len = file.len();
        let state = AtomicU8::new(PART);
        Content { filled: AtomicU64::new(filled), state, file: Some(file), ..Content::new(Some(len)) }
    }

    /// One that goes on behind a part that is in a file. It is passed on, and what the file has is read there. `None`: that is no such part.
    pub(crate) fn behind(part: &Arc<Content>) -> Option<Content> {
        let backing = OnceLock::from(Backing::of_part(part)?);
        let base = part.filled();
        let (filled, is_passing) = (AtomicU64::new(base), AtomicBool::new(true));
        Some(Content { filled, is_passing, base, backing, ..Content::new(part.announced) })
    }

    /// One that is complete, in this block.
    pub(crate) fn of_block(block: Option<Block>) -> Content {
        let len = block.as_ref().map_or(0, Block::end);
        let holding = block.as_ref().map(|block| Holding::of(&block.reservation)).unwrap_or_default();
        let whole = OnceLock::from(block.into_iter().collect::<VecDeque<_>>());
        let state = AtomicU8::new(COMPLETE);
        Content { filled: AtomicU64::new(len), state, whole, holding, ..Content::new(Some(len)) }
    }

    /// The file that all of it, or of a part what there is, lies in, where it is not in memory.
    #[inline]
    pub fn file(&self) -> Option<&StoredFile> {
        self.file.as_ref()
    }

    /// Bytes in all: announced by the origin, or counted when it is complete. `None`: not known yet.
    pub fn len(&self) -> Option<u64> {
        self.announced.or_else(|| self.is_complete().then(|| self.filled()))
    }

    /// Whether there is certainly nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Bytes that are here by now.
    #[inline]
    pub fn filled(&self) -> u64 {
        self.filled.load(Acquire)
    }

    /// Whether all of it is here.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.state.load(Acquire) == COMPLETE
    }

    /// Whether the rest of it will never come.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.state.load(Acquire) == BROKEN
    }

    /// Whether it is a part, [`Content::filled`] bytes, of what was announced, and nobody brings in the rest of it now.
    #[inline]
    pub fn is_part(&self) -> bool {
        self.state.load(Acquire) == PART
    }

    /// Whether it does not fit into the memory, and is let go of as it is read.
    #[inline]
    pub fn is_passing(&self) -> bool {
        self.is_passing.load(Acquire)
    }

    /// Whether anybody can still have all of it: it is kept, or goes to a disk.
    #[inline]
    pub(crate) fn is_for_all(&self) -> bool {
        !self.is_passing() || self.is_spooled.load(Acquire)
    }

    /// Reads these bytes, also those that are still to come. An end behind that of the content is its end. `None`: they have
    /// been let go of, or will be, since the content does not fit into the store, or nobody brings in the rest any more; whoever wants them
    /// fetches them alone. Nor is there a reader of what is in a file as a whole.
    pub fn reader(self: &Arc<Self>, range: Range<u64>) -> Option<Reader> {
        if self.file.is_some() {
            return None;
        }
        // Of what is complete any number read without a lock.
        if self.whole.get().is_some() {
            return Some(Reader::new(self.clone(), None, range));
        }
        let mut waiting = lock(&self.waiting);
        // Who lets go of blocks asks here who needs them first.
        if !self.is_for_all() && self.filled() > self.base || waiting.is_closed && range.end > self.filled() {
            return None;
        }
        let seat = waiting.sit(range.start);
        drop(waiting);
        Some(Reader::new(self.clone(), Some(seat), range))
    }

    /// All of it, where it is complete and in memory: as long as somebody has it, its memory counts as reserved.
    pub fn shared(self: &Arc<Self>) -> Option<SharedPiece> {
        self.whole.get().map(|_| SharedPiece::new(self.clone(), 0, u64::MAX))
    }

    /// Copies from what is complete, or a part, and in memory; the bytes, 0 at the end.
    pub(crate) fn read_at(&self, position: u64, buffer: &mut [u8]) -> usize {
        match self.copy(position, buffer) {
            Copied::Bytes(count) => count,
            _ => 0,
        }
    }

    /// Bytes that were there before it began to be filled, of a part.
    pub(crate) fn filled_before(&self) -> u64 {
        self.base
    }

    /// What the origin has said of its length.
    pub(crate) fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// How many began to read before it was complete, and still want more of it.
    pub(crate) fn readers(&self) -> usize {
        lock(&self.waiting).count()
    }

    pub(crate) fn poll_read(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        seat: Option<usize>,
        position: u64,
        buffer: &mut [u8],
    ) -> Poll<Result<Got, ()>> {
        for is_waiting in [false, true] {
            match self.copy(position, buffer) {
                Copied::Bytes(count) => {
                    if self.is_passing() {
                        self.advance(seat, position + count as u64);
                    }
                    return Poll::Ready(Ok(Got::Bytes(count)));
                }
                Copied::InFile => {
                    let piece = self.backing.get().and_then(|file| file.piece(self, position, u64::MAX));
                    return Poll::Ready(piece.map(Got::InFile).ok_or(()));
                }
                Copied::End => return Poll::Ready(Ok(Got::Bytes(0))),
                Copied::Lost => return Poll::Ready(Err(())),
                Copied::Nothing if !is_waiting => self.wait(seat, position, cx.waker()),
                Copied::Nothing => {}
            }
        }
        Poll::Pending
    }

    fn copy(&self, position: u64, buffer: &mut [u8]) -> Copied {
        if let Some(blocks) = self.whole.get() {
            return match copy_from(blocks, position, buffer) {
                0 => Copied::End,
                count => Copied::Bytes(count),
            };
        }
        let state = self.state.load(Acquire);
        let blocks = self.filling.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(whole) = self.whole.get() {
            let count = copy_from(whole, position, buffer);
            return if count > 0 { Copied::Bytes(count) } else { Copied::End };
        }
        if position < blocks.front().map_or_else(|| self.filled(), |first| first.at) {
            return if position < self.written() { Copied::InFile } else { Copied::Lost };
        }
        match (copy_from(&blocks, position, buffer), state) {
            (0, COMPLETE) => Copied::End,
            (0, BROKEN | PART) => Copied::Lost,
            (0, _) => Copied::Nothing,
            (count, _) => Copied::Bytes(count),
        }
    }

    pub(crate) fn wait(&self, seat: Option<usize>, position: u64, waker: &Waker) {
        let Some(seat) = seat else { return };
        let filler = {
            let mut waiting = lock(&self.waiting);
            if let Some(seat) = waiting.seat(seat) {
                seat.position = seat.position.max(position);
                match &mut seat.waker {
                    Some(known) => known.clone_from(waker),
                    none => *none = Some(waker.clone()),
                }
            }
            waiting.filler.take()
        };
        wake(filler);
    }

    /// The reader has everything before `position`.
    pub(crate) fn advance(&self, seat: Option<usize>, position: u64) {
        let Some(seat) = seat else { return };
        let filler = {
            let mut waiting = lock(&self.waiting);
            if let Some(seat) = waiting.seat(seat) {
                seat.position = seat.position.max(position);
            }
            waiting.filler.take()
        };
        wake(filler);
    }

    pub(crate) fn leave(&self, seat: Option<usize>) {
        let Some(seat) = seat else { return };
        let (filler, gone) = {
            let mut waiting = lock(&self.waiting);
            let gone = waiting.readers.get_mut(seat).and_then(Option::take);
            waiting.free.push(seat);
            (waiting.filler.take(), gone)
        };
        // A waker may belong to anybody: not below a lock.
        drop(gone);
        wake(filler);
    }
}

/// What the fill does.
impl Content {
    /// Appends what there is room for in the last block; answers how much.
    pub(crate) fn put(&self, bytes: &[u8]) -> usize {
        let mut blocks = self.filling.write().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = blocks.back_mut() else { return 0 };
        let count = last.put(bytes);
        drop(blocks);
        self.filled.fetch_add(count as u64, Release);
        count
    }

    pub(crate) fn add(&self, block: Block) {
        self.holding.has(&block.reservation);
        if self.announced.is_none() || self.is_passing() {
            self.holding.count_more(block.reservation.bytes());
        }
        self.filling.write().unwrap_or_else(PoisonError::into_inner).push_back(block);
    }

    /// What the next block should have room for: what is announced and not here yet; where nothing is, a small one first.
    pub(crate) fn next_block(&self) -> usize {
        let filled = self.filled();
        match self.announced {
            Some(len) => capacity_for(len.saturating_sub(filled)),
            None if filled == 0 => BLOCK / 16,
            None if filled < BLOCK as u64 => BLOCK / 4,
            None => BLOCK,
        }
    }

    /// What a disk has of it.
    pub(crate) fn written(&self) -> u64 {
        self.backing.get().map_or(0, Backing::written)
    }

    /// A disk is to have it, and sets the pace as long as it does.
    pub(crate) fn is_to_be_spooled(&self) {
        self.is_spooled.store(true, Release);
    }

    /// No disk will have it: its readers set the pace. Those that are there get all of it.
    pub(crate) fn is_spooled_no_more(&self) {
        self.is_spooled.store(false, Release);
        // Whoever makes a reader at this moment has it before or sees the mark.
        let filler = lock(&self.waiting).filler.take();
        wake(filler);
    }

    /// Where the disk has it. Once.
    pub(crate) fn lies_in(&self, backing: Backing) {
        let _ = self.backing.set(backing);
    }

    /// The disk has so many bytes by now.
    pub(crate) fn has_written(&self, bytes: u64) {
        let Some(backing) = self.backing.get() else { return };
        backing.has_written(bytes);
        let filler = lock(&self.waiting).filler.take();
        wake(filler);
    }

    /// What nobody needs in memory any more: what a disk has, or all readers.
    fn dispensable(&self) -> Option<u64> {
        if self.is_spooled.load(Acquire) {
            return Some(self.written());
        }
        lock(&self.waiting).slowest()
    }

    /// From now on it is let go of as it is read.
    pub(crate) fn pass_on(&self) {
        self.is_passing.store(true, Release);
        // Whoever makes a reader at this moment has it before or sees the mark.
        drop(lock(&self.waiting));
        self.count_held();
    }

    /// Makes the first block that nobody needs any more the last one; `false` where there is none. What else nobody needs is let
    /// go of.
    pub(crate) fn recycle(&self) -> bool {
        let Some(dispensable) = self.dispensable() else { return false };
        let mut gone: SmallVec<[Block; 1]> = SmallVec::new();
        let mut blocks = self.filling.write().unwrap_or_else(PoisonError::into_inner);
        while blocks.front().is_some_and(|first| first.end() <= dispensable) {
            gone.extend(blocks.pop_front());
        }
        let Some(mut block) = gone.pop() else { return false };
        block.reuse(self.filled.load(Relaxed));
        blocks.push_back(block);
        drop(blocks);
        if !gone.is_empty() {
            self.count_held();
        }
        true
    }

    /// All of it has come, and a disk has it: memory keeps none of it.
    pub(crate) fn let_go(&self) {
        let written = self.written();
        let mut blocks = self.filling.write().unwrap_or_else(PoisonError::into_inner);
        let count = blocks.partition_point(|block| block.end() <= written);
        let gone: SmallVec<[Block; WINDOW]> = blocks.drain(..count).collect();
        drop(blocks);
        drop(gone);
        self.count_held();
    }

    /// Whether one that is passed on may have another block.
    pub(crate) fn is_below_window(&self) -> bool {
        self.filling.read().unwrap_or_else(PoisonError::into_inner).len() < WINDOW
    }

    /// Whether the last block has room, or there may be one that has.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        for is_waiting in [false, true] {
            if self.has_room() {
                return Poll::Ready(());
            }
            if !is_waiting {
                let before = lock(&self.waiting).filler.replace(cx.waker().clone());
                drop(before);
            }
        }
        Poll::Pending
    }

    fn has_room(&self) -> bool {
        let dispensable = self.dispensable();
        let blocks = self.filling.read().unwrap_or_else(PoisonError::into_inner);
        let has_room = blocks.back().is_some_and(|last| last.room() > 0);
        let is_dispensable = |first: &Block| dispensable.is_none_or(|end| first.end() <= end);
        has_room || blocks.front().is_none_or(is_dispensable)
    }

    /// Wakes who waits for what has been put.
    pub(crate) fn wake_readers(&self) {
        let wakers: Wakers =
            lock(&self.waiting).readers.iter_mut().flatten().filter_map(|seat| seat.waker.take()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// All of it is here. One block that `exact` makes of all of them, or of the last one, takes their place.
    pub(crate) fn complete(&self, exact: impl FnOnce(u64) -> Option<Reservation>) {
        if self.is_passing() {
            self.end(COMPLETE);
            return;
        }
        let fitted = self.fitted(exact);
        let mut blocks = self.filling.write().unwrap_or_else(PoisonError::into_inner);
        let mut whole = std::mem::take(&mut *blocks);
        let gone = fitted.map(|fitted| {
            let first = whole.partition_point(|block| block.at < fitted.at);
            let gone: SmallVec<[Block; 4]> = whole.drain(first..).collect();
            whole.push_back(fitted);
            gone
        });
        let _ = self.whole.set(whole);
        drop(blocks);
        drop(gone);
        self.count_held();
        self.end(COMPLETE);
    }

    /// The blocks that are not full, as one that is. It is small, or the last one of a large content.
    fn fitted(&self, exact: impl FnOnce(u64) -> Option<Reservation>) -> Option<Block> {
        let blocks = self.filling.read().unwrap_or_else(PoisonError::into_inner);
        let filled = self.filled();
        let first = if filled <= BLOCK as u64 { 0 } else { blocks.len().checked_sub(1)? };
        let spare: usize = blocks.range(first..).map(Block::spare).sum();
        let is_fit = spare == 0 && blocks.len() - first <= 1;
        let at = blocks.get(first)?.at;
        let len = usize::try_from(filled - at).ok()?;
        if is_fit || len == 0 {
            return None;
        }
        let capacity = capacity_for(len as u64);
        let reservation = exact(capacity as u64 + BLOCK_COST)?;
        let mut fitted = Block::new(at, capacity, reservation);
        for block in blocks.range(first..) {
            fitted.put(block.bytes());
        }
        Some(fitted)
    }

    /// Lets nobody in any more who reads further than what is here, unless others than `apart` are reading: the fill can be given up
    /// then, and cuts off nobody.
    pub(crate) fn close_unread(&self, apart: usize) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.is_closed |= waiting.count() <= apart;
        waiting.is_closed
    }

    /// The rest will not come.
    pub(crate) fn break_off(&self) {
        self.end(BROKEN);
    }

    /// The rest will not come now, and what is here stays.
    pub(crate) fn leave_off(&self) {
        self.end(PART);
    }

    /// The rest is to come after all; `false` where it is no part that memory has.
    pub(crate) fn go_on(&self) -> bool {
        let is_in_memory = self.file.is_none() && !self.is_passing();
        let goes_on = is_in_memory && self.state.compare_exchange(PART, FILLING, AcqRel, Acquire).is_ok();
        if goes_on {
            lock(&self.waiting).is_closed = false;
        }
        goes_on
    }

    /// The file behind it could not be read.
    pub(crate) fn backing_has_failed(&self, error: Errno) {
        if let Some(backing) = self.backing.get() {
            backing.has_failed(error);
        }
    }

    fn end(&self, state: u8) {
        lock(&self.waiting).is_closed = state != COMPLETE;
        self.state.store(state, Release);
        self.wake_readers();
    }

    /// Bytes that its blocks have reserved.
    pub(crate) fn reserved(&self) -> u64 {
        let sum = |blocks: &VecDeque<Block>| blocks.iter().map(|block| block.reservation.bytes()).sum();
        match self.whole.get() {
            Some(whole) => sum(whole),
            None => sum(&self.filling.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// Once it is complete.
impl SharedBytes for Content {
    fn hold(&self) {
        Content::hold(self);
    }

    fn release(&self) {
        Content::release(self);
    }

    fn size(&self) -> u64 {
        self.whole.get().and_then(VecDeque::back).map_or(0, Block::end)
    }

    fn run_at(&self, position: u64) -> &[u8] {
        let Some(blocks) = self.whole.get() else { return &[] };
        let block = blocks.get(blocks.partition_point(|block| block.end() <= position));
        let run = block.and_then(|block| block.bytes().get((position.checked_sub(block.at)?) as usize..));
        run.unwrap_or_default()
    }

    fn file_run_at(&self, position: u64) -> Option<FileRun<'_>> {
        let blocks = self.whole.get()?;
        let first = blocks.partition_point(|block| block.end() <= position);
        let mut run = blocks.get(first)?.run(position)?;
        for next in blocks.range(first + 1..) {
            let Some(joined) = next.run(next.at).and_then(|next| run.joined(next)) else { break };
            run = joined;
        }
        Some(run)
    }
}

/// Copies from as many blocks as the buffer has room for.
fn copy_from(blocks: &VecDeque<Block>, position: u64, buffer: &mut [u8]) -> usize {
    let first = blocks.partition_point(|block| block.end() <= position);
    let mut count = 0;
    for block in blocks.range(first..) {
        let Some(at) = (position + count as u64).checked_sub(block.at) else { break };
        let bytes = &block.bytes()[at as usize..];
        let taken = bytes.len().min(buffer.len() - count);
        buffer[count..count + taken].copy_from_slice(&bytes[..taken]);
        count += taken;
        if count == buffer.len() {
            break;
        }
    }
    count
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
