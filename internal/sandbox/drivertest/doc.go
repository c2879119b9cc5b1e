// Package drivertest is the executable contract of sandbox drivers. A driver is
// finished when Run passes with it, and RunFaults where its provider can be broken:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, func(t *testing.T) drivertest.Harness { … })
//	}
//
// Most cases go through package sandbox, because what users hold is the two
// together. What a driver can not do it declares in Harness.Unsupported, and the
// suite asserts that those calls say Unsupported: nothing is passed over in silence.
package drivertest
