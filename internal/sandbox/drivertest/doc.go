// Package drivertest is the conformance suite of sandbox drivers. A driver is finished when Run
// passes with it, and RunFaults if its provider supports fault injection:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, func(t *testing.T) drivertest.Harness { … })
//	}
//
// Most cases use package sandbox, because users depend on both together. A driver declares in
// Harness.Unsupported what it cannot do, and the suite requires that those calls fail with
// Unsupported, so that no gap is silent.
package drivertest
