package modalsandbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/modalsandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

func request(name string) driver.CreateRequest {
	return driver.CreateRequest{
		Name: name, Tags: map[string]string{"installation": "test"}, Image: "debian:12", Timeout: 10 * time.Minute,
	}
}

func TestListingCostsOneCall(t *testing.T) {
	t.Parallel()
	server := localmodaltest.Start(t, localmodal.Options{})
	drv := connect(t, server)
	for _, name := range []string{"one", "two"} {
		_, err := drv.Create(t.Context(), request(name))
		require.NoError(t, err)
	}
	// No call may fetch the tags of each sandbox.
	server.Inject(localmodal.Fault{Method: "SandboxTagsGetV2", Code: codes.PermissionDenied, N: 10})
	list, err := driver.Collect(drv.List(t.Context(), map[string]string{"installation": "test"}))
	require.NoError(t, err)
	require.Len(t, list, 2)
	for _, l := range list {
		require.Contains(t, []string{"one", "two"}, l.Name)
		require.Equal(t, map[string]string{"installation": "test"}, l.Tags)
	}
}

func TestThrottlingIsRetriedForBoundedTime(t *testing.T) {
	t.Parallel()
	server := localmodaltest.Start(t, localmodal.Options{})
	drv := connect(t, server)
	server.Inject(localmodal.Fault{Method: "SandboxCreateV2", Code: codes.ResourceExhausted, RetryAfter: 100 * time.Millisecond})
	_, err := drv.Create(t.Context(), request("soon"))
	require.NoError(t, err)

	server.Inject(localmodal.Fault{Method: "SandboxCreateV2", Code: codes.ResourceExhausted, RetryAfter: time.Hour})
	_, err = drv.Create(t.Context(), request("late"))
	require.Equal(t, driver.Throttled, driver.CodeOf(err), "error: %v", err)
}

func TestShortFailureIsRetriedBySDK(t *testing.T) {
	t.Parallel()
	server := localmodaltest.Start(t, localmodal.Options{})
	drv := connect(t, server)
	server.Inject(localmodal.Fault{Method: "SandboxCreateV2", Code: codes.Unavailable, N: 2, After: true})
	id, err := drv.Create(t.Context(), request("once"))
	require.NoError(t, err)
	list, err := driver.Collect(drv.List(t.Context(), nil))
	require.NoError(t, err)
	require.Len(t, list, 1, "the lost answers made no more")
	require.Equal(t, id, list[0].ID)
}

func TestMissingServerIsUnavailable(t *testing.T) {
	t.Parallel()
	drv := connectWith(t, modalsandbox.Config{ServerURL: "http://127.0.0.1:1", TokenID: "ak", TokenSecret: secret.NewValue("as")})
	_, err := driver.Collect(drv.List(t.Context(), nil))
	require.Equal(t, driver.Unavailable, driver.CodeOf(err), "error: %v", err)
	_, err = drv.Create(t.Context(), request("x"))
	require.Equal(t, driver.Unavailable, driver.CodeOf(err), "error: %v", err)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]modalsandbox.Config{
		"NoCredentials": {},
		"NoSecret":      {TokenID: "ak"},
		"NoScheme":      {TokenID: "ak", TokenSecret: secret.NewValue("as"), ServerURL: "127.0.0.1:9900"},
		"OtherScheme":   {TokenID: "ak", TokenSecret: secret.NewValue("as"), ServerURL: "ftp://127.0.0.1:9900"},
	} {
		_, err := modalsandbox.New(c)
		require.Equal(t, driver.Invalid, driver.CodeOf(err), "%s: %v", name, err)
	}
	for url, isolation := range map[string]string{
		"": "gvisor", "https://api.modal.com:443": "gvisor", "http://localhost:1": "local", "http://[::1]:1": "local", "http://127.0.0.1:1": "local",
	} {
		drv, err := modalsandbox.New(modalsandbox.Config{TokenID: "ak", TokenSecret: secret.NewValue("as"), ServerURL: url})
		require.NoError(t, err)
		require.Equal(t, driver.Description{Driver: "modal", Isolation: isolation}, drv.Describe())
		require.NoError(t, drv.Close())
	}
}

func TestIsolationIsReadFromServer(t *testing.T) {
	t.Parallel()
	server := localmodaltest.Start(t, localmodal.Options{})
	drv := connect(t, server)
	require.Equal(t, "local", drv.Describe().Isolation)
	_, err := driver.Collect(drv.List(t.Context(), map[string]string{"some": "tag"}))
	require.NoError(t, err)
	require.Equal(t, string(server.Isolation()), drv.Describe().Isolation)
	require.Equal(t, "namespaces", drv.Describe().Isolation)
}

// The environment would silently override the configuration.
func TestConfigContradictsEnvironment(t *testing.T) {
	t.Setenv("MODAL_SERVER_URL", "http://127.0.0.1:2")
	_, err := modalsandbox.New(modalsandbox.Config{TokenID: "ak", TokenSecret: secret.NewValue("as"), ServerURL: "http://127.0.0.1:1"})
	require.ErrorContains(t, err, "MODAL_SERVER_URL")
	drv, err := modalsandbox.New(modalsandbox.Config{TokenID: "ak", TokenSecret: secret.NewValue("as"), ServerURL: "http://127.0.0.1:2"})
	require.NoError(t, err)
	require.NoError(t, drv.Close())
}

// The name of a profile in the environment must not select Modal's address.
func TestConfigUnderAnotherProfile(t *testing.T) {
	server := localmodaltest.Start(t, localmodal.Options{})
	t.Setenv("MODAL_PROFILE", "somebody")
	_, err := driver.Collect(connect(t, server).List(t.Context(), nil))
	require.NoError(t, err)
}
