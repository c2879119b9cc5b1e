package sandbox_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

type bundle struct {
	drv      *memsandbox.Driver
	provider *sandbox.Provider
	spec     sandbox.Spec
}

func setup(t *testing.T) *bundle {
	t.Helper()
	drv := memsandbox.New()
	t.Cleanup(func() { require.NoError(t, drv.Close()) })
	drv.Handle("cat", func(_ context.Context, p *memsandbox.Proc) int {
		_, _ = io.Copy(p.Stdout, p.Stdin)
		return 0
	})
	drv.Handle("true", func(context.Context, *memsandbox.Proc) int { return 0 })
	return &bundle{
		drv:      drv,
		provider: sandbox.NewProvider(drv, sandbox.Options{Installation: "test"}),
		spec:     sandbox.Spec{Session: session.NewID(session.SessionPrefix), Generation: 1, Image: "debian:12"},
	}
}

func (b *bundle) create(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	sb, _, err := b.provider.Create(t.Context(), b.spec)
	require.NoError(t, err)
	return sb
}

func TestCreateRejectsInvalidSpec(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *sandbox.Spec){
		"NoSession":       func(s *sandbox.Spec) { s.Session = "" },
		"StrangeSession":  func(s *sandbox.Spec) { s.Session = "my-session" },
		"NoGeneration":    func(s *sandbox.Spec) { s.Generation = 0 },
		"NoImage":         func(s *sandbox.Spec) { s.Image = "" },
		"LongTimeout":     func(s *sandbox.Spec) { s.Timeout = sandbox.MaxTimeout + 1 },
		"NegativeTimeout": func(s *sandbox.Spec) { s.Timeout = -time.Second },
		"RelativeWorkdir": func(s *sandbox.Spec) { s.Workdir = "work" },
		"BadVariable":     func(s *sandbox.Spec) { s.Env = map[string]string{"": "x"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			change(&b.spec)
			_, _, err := b.provider.Create(t.Context(), b.spec)
			require.Equal(t, sandbox.Invalid, sandbox.CodeOf(err), "error: %v", err)
			require.Zero(t, b.drv.Calls(memsandbox.OpCreate))
		})
	}
	t.Run("StrangeInstallation", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for _, installation := range []string{"", "two words"} {
			p := sandbox.NewProvider(b.drv, sandbox.Options{Installation: installation})
			_, _, err := p.Create(t.Context(), b.spec)
			require.Equal(t, sandbox.Invalid, sandbox.CodeOf(err), "error: %v", err)
		}
	})
}

// requests records the requests to a driver.
type requests struct {
	*memsandbox.Driver
	got []driver.CreateRequest
}

func (r *requests) Create(ctx context.Context, q driver.CreateRequest) (string, error) {
	r.got = append(r.got, q)
	return r.Driver.Create(ctx, q)
}

func TestCreateAlwaysBoundsLife(t *testing.T) {
	t.Parallel()
	b := setup(t)
	drv := &requests{Driver: b.drv}
	p := sandbox.NewProvider(drv, sandbox.Options{Installation: "test"})
	for _, timeout := range []time.Duration{0, 1, 1500 * time.Millisecond, 24 * time.Hour} {
		b.spec.Generation++
		b.spec.Timeout = timeout
		_, _, err := p.Create(t.Context(), b.spec)
		require.NoError(t, err)
	}
	want := []time.Duration{24 * time.Hour, time.Second, 2 * time.Second, 24 * time.Hour}
	for i, q := range drv.got {
		require.Equal(t, want[i], q.Timeout)
	}
	require.Equal(t, map[string]string{
		"installation": "test", "session": b.spec.Session, "generation": "2", "image": "debian-12",
	}, drv.got[0].Tags)
}

// freed is a driver whose name is taken by a sandbox that ends before it is looked up.
type freed struct {
	*memsandbox.Driver
	inTheWay int
}

func (f *freed) Create(ctx context.Context, q driver.CreateRequest) (string, error) {
	if f.inTheWay > 0 {
		f.inTheWay--
		return "", driver.Errorf(driver.NameTaken, "create", q.Name, "in the way")
	}
	return f.Driver.Create(ctx, q)
}

func TestCreateRetriesAfterNameHolderEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := sandbox.NewProvider(&freed{b.drv, 2}, sandbox.Options{Installation: "test"})
	_, adopted, err := p.Create(t.Context(), b.spec)
	require.NoError(t, err)
	require.False(t, adopted)

	b.spec.Generation++
	p = sandbox.NewProvider(&freed{b.drv, 100}, sandbox.Options{Installation: "test"})
	_, _, err = p.Create(t.Context(), b.spec)
	require.Equal(t, sandbox.Unavailable, sandbox.CodeOf(err), "error: %v", err)
}

func TestDeathIsConfirmedByProvider(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code driver.Code
		kill bool
		poll driver.Code
		want sandbox.Code
	}{
		"GoneAndRunning":        {code: driver.Gone, want: sandbox.Unavailable},
		"GoneAndEnded":          {code: driver.Gone, kill: true, want: sandbox.Gone},
		"GoneAndNobodyCanTell":  {code: driver.Gone, poll: driver.Unavailable, want: sandbox.Unavailable},
		"UnavailableAndRunning": {code: driver.Unavailable, want: sandbox.Unavailable},
		"UnavailableAndEnded":   {code: driver.Unavailable, kill: true, want: sandbox.Gone},
		"UnavailableAndUnknown": {code: driver.Unavailable, poll: driver.Gone, want: sandbox.Gone},
		"ConflictAndRunning":    {code: driver.Conflict, want: sandbox.Conflict},
		"TimeoutAndEnded":       {code: driver.Timeout, kill: true, want: sandbox.Gone},
		"DeniedAndEnded":        {code: driver.Denied, kill: true, want: sandbox.Denied},
		"ThrottledAndEnded":     {code: driver.Throttled, kill: true, want: sandbox.Throttled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			sb := b.create(t)
			if c.kill {
				require.True(t, b.drv.Kill(sb.ID(), 1))
			}
			for _, op := range []memsandbox.Op{memsandbox.OpExec, memsandbox.OpReadFile, memsandbox.OpWriteFile, memsandbox.OpSnapshot} {
				b.drv.Inject(memsandbox.Fault{Op: op, Code: c.code})
			}
			if c.poll != "" {
				b.drv.Inject(memsandbox.Fault{Op: memsandbox.OpPoll, Code: c.poll, N: -1})
			}
			_, err := sb.Exec(t.Context(), sandbox.ExecSpec{Argv: []string{"true"}})
			require.Equal(t, c.want, sandbox.CodeOf(err), "exec: %v", err)
			_, err = sb.ReadFile(t.Context(), "/f")
			require.Equal(t, c.want, sandbox.CodeOf(err), "read: %v", err)
			err = sb.WriteFile(t.Context(), "/f", nil, 0)
			require.Equal(t, c.want, sandbox.CodeOf(err), "write: %v", err)
			_, err = sb.Snapshot(t.Context(), sandbox.SnapshotSpec{})
			require.Equal(t, c.want, sandbox.CodeOf(err), "snapshot: %v", err)
		})
	}
}

func TestErrorNamesOperationAndSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(t)
	require.True(t, b.drv.Kill(sb.ID(), 9))
	_, err := sb.ReadFile(t.Context(), "/f")
	require.EqualError(t, err, "read file "+sb.ID()+": gone: the sandbox has ended with code 9: read file "+sb.ID()+": conflict: the sandbox has ended")
	var e *sandbox.Error
	require.ErrorAs(t, err, &e)
	require.True(t, e.Final())
	require.True(t, sandbox.IsGone(err))
	require.False(t, sandbox.IsGone(nil))
	require.Empty(t, sandbox.CodeOf(nil))
	require.Equal(t, sandbox.Unavailable, sandbox.CodeOf(errors.New("anything")))
}

// The provider reports nothing about a process.
func TestWaitEndsDespiteSilentProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		sb := b.create(t)
		b.drv.Inject(memsandbox.Fault{Op: memsandbox.OpWait, Hang: true})
		began := time.Now()
		_, err := sb.Run(t.Context(), sandbox.RunSpec{Argv: []string{"true"}, Timeout: time.Minute})
		require.Equal(t, sandbox.Timeout, sandbox.CodeOf(err), "error: %v", err)
		require.ErrorContains(t, err, "wait for the process took more than")
		require.Equal(t, 75*time.Second, time.Since(began))
	})
}

func TestWaitEndsWithSandboxDespiteHangingProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		sb := b.create(t)
		b.drv.Inject(memsandbox.Fault{Op: memsandbox.OpWait, Hang: true})
		b.drv.Inject(memsandbox.Fault{Op: memsandbox.OpPoll, Code: driver.Unavailable, N: 2}) // unknown at first
		p, err := sb.Exec(t.Context(), sandbox.ExecSpec{Argv: []string{"cat"}, Timeout: time.Hour})
		require.NoError(t, err)
		require.True(t, b.drv.Kill(sb.ID(), 1))
		began := time.Now()
		_, err = p.Wait(t.Context())
		require.Equal(t, sandbox.Gone, sandbox.CodeOf(err), "error: %v", err)
		require.Equal(t, 30*time.Second, time.Since(began), "the third poll shows it")
		require.NoError(t, p.Close())
	})
}

func TestHangingSnapshotTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		sb := b.create(t)
		b.drv.Inject(memsandbox.Fault{Op: memsandbox.OpSnapshot, Hang: true})
		began := time.Now()
		_, err := sb.Snapshot(t.Context(), sandbox.SnapshotSpec{})
		require.Equal(t, sandbox.Timeout, sandbox.CodeOf(err), "error: %v", err)
		require.Equal(t, sandbox.DefaultSnapshotTimeout, time.Since(began))
	})
}

func TestSandboxEndsAtItsLifetime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		sb := b.create(t)
		<-time.After(sandbox.MaxTimeout - time.Second)
		st, err := sb.Poll(t.Context())
		require.NoError(t, err)
		require.True(t, st.Running)
		<-time.After(2 * time.Second)
		st, err = sb.Poll(t.Context())
		require.NoError(t, err)
		require.Equal(t, sandbox.Status{ExitCode: driver.ExitLifetime}, st)
	})
}

func TestExitSnapshotOfForgottenSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(t)
	b.drv.Forget(sb.ID())
	_, err := sb.ExitSnapshot(t.Context())
	require.Equal(t, sandbox.Gone, sandbox.CodeOf(err), "error: %v", err)
	require.NoError(t, sb.Terminate(t.Context()))
}

func TestOnlySilentProcessPollsSandbox(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		every time.Duration
		polls int
	}{
		"Talking": {every: time.Second, polls: 0},
		"Silent":  {every: time.Hour, polls: 6}, // in 65 s, every 10 s
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				b.drv.Handle("talk", func(ctx context.Context, p *memsandbox.Proc) int {
					tick := time.NewTicker(c.every)
					defer tick.Stop()
					for {
						select {
						case <-tick.C:
							_, _ = io.WriteString(p.Stdout, "still here\n")
						case <-ctx.Done():
							return 0
						}
					}
				})
				p, err := b.create(t).Exec(t.Context(), sandbox.ExecSpec{Argv: []string{"talk"}, Timeout: 65 * time.Second})
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, p.Stdout)
				require.NoError(t, err)
				_, err = p.Wait(t.Context())
				require.Equal(t, sandbox.Timeout, sandbox.CodeOf(err), "error: %v", err)
				require.Equal(t, c.polls, b.drv.Calls(memsandbox.OpPoll))
			})
		})
	}
}
