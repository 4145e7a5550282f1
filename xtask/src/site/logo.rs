//! The logo as pixels: a gate of four bars on a blue disc, the tide before its lower half.
//! `examples/site/logo.svg` is the same drawing; a change belongs in both. Used by `site`.

use super::png;

/// The drawing is made on a square of this side.
const SIDE: f64 = 64.0;

/// Samples in each direction within a pixel, which smooth the edges.
const SAMPLES: usize = 4;

const DISC: [f64; 3] = [11.0, 79.0, 108.0];
const BARS: [f64; 3] = [243.0, 248.0, 250.0];
const TIDE: [f64; 3] = [63.0, 182.0, 196.0];

/// A PNG file, `size` pixels wide and high.
pub fn image(size: usize) -> Vec<u8> {
    let pixels: Vec<[u8; 4]> =
        (0..size).flat_map(|row| (0..size).map(move |column| pixel(size, column, row))).collect();
    png::encode(size, &pixels)
}

fn pixel(size: usize, column: usize, row: usize) -> [u8; 4] {
    let mut sum = [0.0; 3];
    let mut covered = 0.0;
    for sample in 0..SAMPLES * SAMPLES {
        let within = |part: usize| (part as f64 + 0.5) / SAMPLES as f64;
        let x = (column as f64 + within(sample % SAMPLES)) * SIDE / size as f64;
        let y = (row as f64 + within(sample / SAMPLES)) * SIDE / size as f64;
        if let Some(colour) = colour(x, y) {
            covered += 1.0;
            for (sum, part) in sum.iter_mut().zip(colour) {
                *sum += part;
            }
        }
    }
    // Clamped, so that the conversions cannot lose anything.
    let byte = |value: f64| value.round().clamp(0.0, 255.0) as u8;
    let [red, green, blue] = sum.map(|sum| byte(if covered > 0.0 { sum / covered } else { 0.0 }));
    [red, green, blue, byte(covered * 255.0 / (SAMPLES * SAMPLES) as f64)]
}

/// The colour at a point; `None` outside the disc.
fn colour(x: f64, y: f64) -> Option<[f64; 3]> {
    let centre = SIDE / 2.0;
    if (x - centre).hypot(y - centre) > 31.0 {
        return None;
    }
    // Waves 16 wide and 3 high, between two slopes of a parabola, as the curves of the SVG are.
    let phase = (x / 8.0).rem_euclid(2.0);
    let within = phase.rem_euclid(1.0);
    let swell = 6.0 * within * (1.0 - within);
    let surface = if phase < 1.0 { 40.0 - swell } else { 40.0 + swell };
    let is_bar = (14.0..50.0).contains(&x) && (x - 14.0).rem_euclid(10.0) < 6.0 && (14.0..50.0).contains(&y);
    let is_beam = (12.0..52.0).contains(&x) && (12.0..17.0).contains(&y);
    Some(if y > surface {
        TIDE
    } else if is_bar || is_beam {
        BARS
    } else {
        DISC
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_the_drawing() {
        assert_eq!(colour(0.0, 0.0), None);
        assert_eq!(colour(32.0, 14.0), Some(BARS));
        assert_eq!(colour(22.0, 25.0), Some(DISC));
        assert_eq!(colour(32.0, 56.0), Some(TIDE));
    }
}
