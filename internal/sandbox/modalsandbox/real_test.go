package modalsandbox_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sandbox/drivertest"
	"github.com/overwinter-dev/overwinter/internal/sandbox/modalsandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// TestRealModalConformance runs the suite with the account, or the server at MODAL_SERVER_URL, that
// the environment names. It costs money, so it must be requested:
//
//	OVERWINTER_TEST_REAL_MODAL=1 MODAL_TOKEN_ID=… MODAL_TOKEN_SECRET=… \
//	  go test -run TestRealModalConformance -timeout 30m ./internal/sandbox/modalsandbox
func TestRealModalConformance(t *testing.T) {
	if os.Getenv("OVERWINTER_TEST_REAL_MODAL") == "" {
		t.Skip("OVERWINTER_TEST_REAL_MODAL is not set")
	}
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		t.Helper()
		connect := func() *modalsandbox.Driver {
			drv, err := modalsandbox.New(modalsandbox.Config{
				ServerURL:   os.Getenv("MODAL_SERVER_URL"),
				TokenID:     os.Getenv("MODAL_TOKEN_ID"),
				TokenSecret: secret.NewValue(os.Getenv("MODAL_TOKEN_SECRET")),
				Environment: os.Getenv("MODAL_ENVIRONMENT"),
				AppName:     "overwinter-conformance",
			})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, drv.Close()) })
			return drv
		}
		return drivertest.Harness{
			Driver: connect(), Second: connect(), Image: "debian:12", OtherImage: "debian:12-slim",
			Commands: drivertest.Shell(), Unsupported: []drivertest.Ability{drivertest.ImageLists, drivertest.OwnNetworks},
		}
	})
}
