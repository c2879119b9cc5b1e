package localmodal_test

import (
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
)

func TestLostResponsesAreRepeated(t *testing.T) {
	t.Parallel()
	b := alone(t)
	b.server.Inject(localmodal.Fault{Method: "SandboxCreateV2", Code: codes.Unavailable, N: 2, After: true})
	sb := b.create(&modal.SandboxCreateParams{Name: "once"})
	require.Equal(t, []string{sb.SandboxID}, b.list(&modal.SandboxListParams{AppID: b.app.AppID}))

	b.server.Inject(localmodal.Fault{Method: "TaskExecStart", Code: codes.Unavailable, N: 2, After: true})
	b.sh(sb, "echo ran >> /root/f")
	require.Equal(t, "ran\n", b.sh(sb, "cat /root/f"))

	b.server.Inject(localmodal.Fault{Method: "TaskSnapshotFilesystem", Code: codes.Unavailable, After: true})
	im := b.snapshot(sb)
	require.Equal(t, "ran\n", b.sh(b.createFrom(im, nil), "cat /root/f"))
	b.server.Inject(localmodal.Fault{Method: "TaskExecStdinWrite", Code: codes.Unavailable, After: true})
	require.Equal(t, "once", b.exec(sb, nil, "once", "cat").stdout)
}

func TestSandboxOfLostCreateIsAdoptedByName(t *testing.T) {
	t.Parallel()
	b := alone(t)
	b.server.Inject(localmodal.Fault{Method: "SandboxCreateV2", Code: codes.PermissionDenied, After: true})
	_, err := b.client.Sandboxes.Create(b.ctx, b.app, b.image, &modal.SandboxCreateParams{Name: "s-g1"})
	require.Error(t, err)
	_, err = b.client.Sandboxes.Create(b.ctx, b.app, b.image, &modal.SandboxCreateParams{Name: "s-g1"})
	var exists modal.AlreadyExistsError
	require.ErrorAs(t, err, &exists)
	sb, err := b.client.Sandboxes.FromName(b.ctx, appOf(t), "s-g1", nil)
	require.NoError(t, err)
	require.Equal(t, "x\n", b.sh(b.handle(sb), "echo x"))
}

func TestFaultsStrikeGivenNumberOfCalls(t *testing.T) {
	t.Parallel()
	b := alone(t)
	b.server.Inject(localmodal.Fault{Method: "SandboxCreateV2", Code: codes.ResourceExhausted})
	_, err := b.client.Sandboxes.Create(b.ctx, b.app, b.image, nil)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))

	b.server.Inject(localmodal.Fault{Method: "SandboxCreateV2", Code: codes.ResourceExhausted, N: 2, RetryAfter: 100 * time.Millisecond})
	started := time.Now()
	sb := b.create(nil)
	require.GreaterOrEqual(t, time.Since(started), 200*time.Millisecond)

	b.server.Inject(localmodal.Fault{Method: "SandboxWaitV2", Delay: 200 * time.Millisecond})
	started = time.Now()
	_, err = sb.Poll(b.ctx, nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(started), 200*time.Millisecond)
}
