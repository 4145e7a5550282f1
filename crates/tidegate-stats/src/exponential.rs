//! The buckets of histograms: sixteen to each power of two of *seconds*, as Prometheus native histograms and
//! OpenTelemetry exponential histograms of scale 4 have them.
//!
//! Time is counted in ticks of 2^-30 s, so that a bucket's end is where those formats have it: bucket `n` holds what is
//! longer than 2^((n-1)/16 - 20) s and at most 2^(n/16 - 20) s. The first bucket also has what is shorter (0.95 us), the
//! last what is longer (three days). Halving the number of a bucket, rounded up, is its bucket at scale 3: that is how the
//! coarser histograms of routes are kept.

/// Buckets to each power of two.
pub(crate) const PER_OCTAVE: usize = 16;
/// The end of the first bucket is 2^-20 s, which is 2^10 ticks.
const FIRST_OCTAVE: usize = 10;
/// The end of the last bucket but one is 2^18 s.
const OCTAVES: usize = 38;
/// The bucket of everything that is longer.
pub(crate) const LAST: usize = OCTAVES * PER_OCTAVE + 1;
/// All of them.
pub(crate) const BUCKETS: usize = LAST + 1;

/// 2^30 / 10^9 as a fraction of 2^63, rounded up.
const TICKS_PER_NANOSECOND: u64 = 0x8970_5f41_36b4_a598;

/// 2^63 * 2^(n/16), rounded down: what is larger belongs to the next bucket.
const ENDS: [u64; PER_OCTAVE + 1] = [
    0x8000_0000_0000_0000,
    0x85aa_c367_cc48_7b14,
    0x8b95_c1e3_ea8b_d6e6,
    0x91c3_d373_ab11_c336,
    0x9837_f051_8db8_a96f,
    0x9ef5_3260_91a1_11ad,
    0xa5fe_d6a9_b151_38ea,
    0xad58_3eea_42a1_4ac6,
    0xb504_f333_f9de_6484,
    0xbd08_a39f_580c_36be,
    0xc567_2a11_5506_dadd,
    0xce24_8c15_1f84_80e3,
    0xd744_fcca_d69d_6af4,
    0xe0cc_deec_2a94_e111,
    0xeac0_c6e7_dd24_392e,
    0xf525_7d15_2486_cc2c,
    u64::MAX,
];

/// How many of [`ENDS`] lie below the beginning of each 32nd of an octave. No 32nd holds more than one.
const BELOW: [u8; 32] = {
    let mut below = [0; 32];
    let mut part = 0;
    while part < 32 {
        let begin = (1 << 63) + ((part as u64) << 58);
        while ENDS[below[part] as usize] < begin {
            below[part] += 1;
        }
        part += 1;
    }
    below
};

/// Nanoseconds as ticks of 2^-30 s, rounded down. What is less than a nanosecond beyond the end of a bucket may be counted
/// there: the end that is told is rounded up to a whole one, so it is not less all the same.
#[inline]
pub(crate) fn ticks(nanos: u64) -> u64 {
    let product = u128::from(nanos) * u128::from(TICKS_PER_NANOSECOND);
    (product >> 63) as u64 // what is longer than 544 years wraps, and nothing is
}

/// Ticks as nanoseconds.
pub(crate) fn nanos(ticks: u128) -> u128 {
    ticks.saturating_mul(1_000_000_000) >> 30
}

/// The bucket of a time.
#[inline]
pub(crate) fn bucket_of(ticks: u64) -> usize {
    let ticks = ticks.max(1);
    let zeros = ticks.leading_zeros();
    let mantissa = ticks << zeros;
    let below = usize::from(BELOW[(mantissa >> 58) as usize & 31]);
    let within = below + usize::from(mantissa > ENDS[below]);
    let number = PER_OCTAVE * (63 - zeros as usize) + within;
    number.saturating_sub(PER_OCTAVE * FIRST_OCTAVE).min(LAST)
}

/// The longest time of a bucket, nanoseconds, rounded up; of the last one, where it begins.
pub(crate) fn end_of(bucket: usize) -> u64 {
    (end_in_seconds(bucket.min(LAST - 1)) * 1e9).ceil() as u64
}

/// The same in seconds.
pub(crate) fn end_in_seconds(bucket: usize) -> f64 {
    (bucket as f64 / PER_OCTAVE as f64 - 20.0).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_end_is_in_its_bucket_and_the_next_tick_is_not() {
        for octave in FIRST_OCTAVE..FIRST_OCTAVE + OCTAVES {
            for (place, end) in ENDS[..PER_OCTAVE].iter().enumerate() {
                let ticks = end >> (63 - octave);
                let bucket = (octave - FIRST_OCTAVE) * PER_OCTAVE + place;
                let is_exact = place == 0;
                assert_eq!(bucket_of(ticks + 1), bucket + 1, "{octave} {place}");
                if is_exact {
                    assert_eq!(bucket_of(ticks), bucket, "{octave} {place}");
                }
            }
        }
        assert_eq!((bucket_of(0), bucket_of(1 << 10), bucket_of(u64::MAX)), (0, 0, LAST));
    }

    #[test]
    fn a_second_is_a_power_of_two() {
        assert_eq!(ticks(1_000_000_000), 1 << 30);
        assert_eq!(end_in_seconds(bucket_of(ticks(1_000_000_000))), 1.0);
        assert_eq!(end_of(bucket_of(ticks(1_000_000_000))), 1_000_000_000);
        assert_eq!((nanos(1 << 30), ticks(0), ticks(1)), (1_000_000_000, 0, 1));
    }

    proptest! {
        #[test]
        fn what_is_told_is_never_less_and_little_more(nanos in 1_000u64..200_000_000_000_000) {
            let told = end_of(bucket_of(ticks(nanos)));
            prop_assert!(told >= nanos, "{} for {}", told, nanos);
            prop_assert!(told as f64 <= nanos as f64 * 1.0443 + 3.0, "{} for {}", told, nanos);
        }

        #[test]
        fn longer_times_have_no_lower_bucket(one: u64, other: u64) {
            let (short, long) = (one.min(other), one.max(other));
            prop_assert!(bucket_of(short) <= bucket_of(long));
        }
    }
}
