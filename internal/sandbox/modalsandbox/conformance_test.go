package modalsandbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/sandbox/drivertest"
	"github.com/overwinter-dev/overwinter/internal/sandbox/modalsandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

func TestMain(m *testing.M) {
	localmodal.ReexecMain()
	drivertest.Attack()
	leaktest.Main(m)
}

// TestConformance runs the suite with the SDK against a server on this machine, at each isolation
// level. It prints what a level declares as unsupported; the suite requires none of it.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, level := range box.Levels() {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			o := localmodal.Options{Isolation: level, Network: box.AutoNetwork}
			shared := localmodaltest.Start(t, o)
			for _, lack := range shared.Lacks() {
				t.Logf("isolation %q cannot, as declared: %s", shared.Isolation(), lack)
			}
			drivertest.Run(t, func(t *testing.T) drivertest.Harness {
				t.Helper()
				return harness(t, shared)
			})
			drivertest.RunFaults(t, func(t *testing.T) drivertest.Harness {
				t.Helper()
				return harness(t, localmodaltest.Start(t, o)) // a fault affects any caller
			})
		})
	}
}

func harness(t *testing.T, server *localmodal.Server) drivertest.Harness {
	t.Helper()
	var unsupported []drivertest.Ability
	for _, lack := range server.Lacks() {
		if lack.Ability == box.OwnNetwork {
			unsupported = append(unsupported, drivertest.OwnNetworks)
		}
	}
	return drivertest.Harness{
		Unsupported: unsupported,
		Driver:      connect(t, server), Second: connect(t, server),
		Image: "debian:12", OtherImage: "debian:13",
		Commands: drivertest.Shell(), Faults: faults{server},
	}
}

func connect(t *testing.T, server *localmodal.Server) *modalsandbox.Driver {
	t.Helper()
	return connectWith(t, modalsandbox.Config{
		ServerURL: server.URL(), TokenID: server.Token().ID, TokenSecret: secret.NewValue(server.Token().Secret),
	})
}

func connectWith(t *testing.T, c modalsandbox.Config) *modalsandbox.Driver {
	t.Helper()
	drv, err := modalsandbox.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, drv.Close()) })
	return drv
}

// faults injects faults into a server on this machine that the SDK does not repair by itself.
type faults struct{ server *localmodal.Server }

var methods = map[drivertest.Call]string{
	drivertest.Create: "SandboxCreateV2", drivertest.Terminate: "SandboxTerminateV2", drivertest.Snapshot: "TaskSnapshotFilesystem",
	drivertest.ReadFile: "TaskExecStart", drivertest.Wait: "TaskExecWait",
}

func (f faults) Lose(_ *testing.T, c drivertest.Call) {
	f.server.Inject(localmodal.Fault{Method: methods[c], Code: codes.ResourceExhausted, After: true})
}

func (f faults) Delay(_ *testing.T, c drivertest.Call, d time.Duration) {
	f.server.Inject(localmodal.Fault{Method: methods[c], Delay: d})
}

func (f faults) Mislead(_ *testing.T, c drivertest.Call) {
	f.server.Inject(localmodal.Fault{Method: methods[c], Code: codes.NotFound})
}
