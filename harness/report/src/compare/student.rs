//! Student's t distribution, for an estimated spread.

/// The two-sided p-value of t with this many degrees of freedom.
pub(super) fn two_sided(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// The critical value of t at confidence `level`.
pub(super) fn critical(level: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, freedom) > 1.0 - level {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if two_sided(middle, freedom) > 1.0 - level {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22), evaluated as Lentz did.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on this side only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    const TINY: f64 = 1e-300;
    let off_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / off_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..500_u32 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / off_zero(1.0 + term * d);
            c = off_zero(1.0 + term / c);
            change = d * c;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-14 {
            break;
        }
    }
    let front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln();
    front.exp() / a * fraction
}

/// The logarithm of the gamma function above 0, after Stirling (DLMF 5.11.1), shifted to where that is exact.
fn ln_gamma(x: f64) -> f64 {
    let mut shifted = x;
    let mut product = 1.0;
    while shifted < 10.0 {
        product *= shifted;
        shifted += 1.0;
    }
    let inverse = 1.0 / (shifted * shifted);
    let series =
        (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / shifted;
    let half_ln_tau = std::f64::consts::TAU.ln() / 2.0;
    (shifted - 0.5) * shifted.ln() - shifted + half_ln_tau + series - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From printed tables.
    #[test]
    fn critical_values_are_those_of_the_tables() {
        for (level, freedom, t) in [
            (0.95, 1.0, 12.706),
            (0.95, 4.0, 2.776),
            (0.95, 10.0, 2.228),
            (0.99, 10.0, 3.169),
            (0.999, 30.0, 3.646),
            (0.95, 1e6, 1.960),
        ] {
            assert!(
                (critical(level, freedom) - t).abs() < 6e-4,
                "{level} {freedom}: {}",
                critical(level, freedom)
            );
            assert!((two_sided(t, freedom) - (1.0 - level)).abs() < 1e-4);
        }
        assert_eq!(two_sided(0.0, 5.0), 1.0);
    }
}
