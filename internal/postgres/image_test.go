package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func (b *harness) intent(t *testing.T) image.Intent {
	t.Helper()
	intent := image.Intent{ID: session.NewID("img_"), SessionID: b.id, Generation: 1, Source: "sb-1"}
	require.NoError(t, b.ImageIntend(b.ctx, intent))
	return intent
}

func (b *harness) counts(t *testing.T, age time.Duration) image.Counts {
	t.Helper()
	counts, err := b.ImageCounts(b.ctx, age)
	require.NoError(t, err)
	return counts
}

func TestStaleImageIntentIsCountedAsHidden(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made, failed := b.intent(t), b.intent(t)
	b.intent(t)
	require.EqualValues(t, 3, b.counts(t, 0).Hidden)
	require.NoError(t, b.SnapshotMade(b.ctx, made, "im-1"))
	require.NoError(t, b.ImageIntentEnd(b.ctx, failed.ID))
	require.EqualValues(t, 1, b.counts(t, 0).Hidden)
	require.Zero(t, b.counts(t, time.Hour).Hidden, "a recent one is in progress")
	forgotten, err := b.ImageIntentsForget(b.ctx, 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, forgotten)
}

func TestExitImageIsUnneededWithoutBundle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	due := func() []image.Exit {
		t.Helper()
		b.sql(t, "UPDATE exit_images SET next_at = now()")
		due, err := b.ExitImagesDue(b.ctx, 10)
		require.NoError(t, err)
		return due
	}
	require.Empty(t, due(), "it runs")
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, "lost"))
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, "again"))
	require.Empty(t, due(), "it was not saved: the session may still need it")
	b.reserve(t, 2)
	require.Empty(t, due(), "nor was anything since")
	b.commit(t, "im-later")
	found := due()
	require.Len(t, found, 1)
	require.Equal(t, "sb-1", found[0].SandboxID)
	again, err := b.ExitImagesDue(b.ctx, 10)
	require.NoError(t, err)
	require.Empty(t, again, "no other caller gets it meanwhile")
	found[0].ImageID = "im-exit"
	require.NoError(t, b.ExitImagesSettle(b.ctx, found))
	require.NoError(t, b.ExitImagesSettle(b.ctx, found), "twice is once")
	require.Empty(t, due())
	require.Equal(t, []string{"im-exit"}, b.condemned(t))

	// A rescue committed a bundle with the image before the sandbox's row ended.
	b.commit(t, "im-rescued")
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 2, "lost"))
	found = due()
	found[0].ImageID = "im-rescued"
	require.NoError(t, b.ExitImagesSettle(b.ctx, found))
	require.Equal(t, []string{"im-exit"}, b.condemned(t))

	// For a sandbox without a row, and an unknown session.
	require.NoError(t, b.ExitImageExpect(b.ctx, image.Exit{SandboxID: "sb-x", SessionID: "ses_nobody", Generation: 1}))
	found = due()
	require.Len(t, found, 1)
	found[0].ImageID = "im-x"
	require.NoError(t, b.ExitImagesSettle(b.ctx, found))
	require.ElementsMatch(t, []string{"im-exit", "im-x"}, b.condemned(t))

	// There is no image.
	require.NoError(t, b.ExitImageExpect(b.ctx, image.Exit{SandboxID: "sb-y", SessionID: b.id, Generation: 1}))
	require.EqualValues(t, 1, b.counts(t, 0).Exits)
	require.NoError(t, b.ExitImagesSettle(b.ctx, []image.Exit{{SandboxID: "sb-y"}}))
	require.Zero(t, b.counts(t, 0).Exits)
}

func TestOnlyUnreferencedListedImagesAreStray(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.commit(t, "im-known")
	_, err := b.BaseImageUse(b.ctx, "base:1", "im-base")
	require.NoError(t, err)
	listed := []image.Listed{
		{ID: "im-known", SessionID: b.id, Generation: 1},
		{ID: "im-base"},
		{ID: "im-exit", SessionID: b.id, Generation: 1, Exit: true},
		{ID: "im-stray", SessionID: b.id, Generation: 1},
		{ID: "im-foreign", SessionID: "ses_nobody", Generation: 4, Exit: true},
	}
	stray := func(want int) {
		t.Helper()
		n, err := b.ImagesStray(b.ctx, listed, time.Hour)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	stray(2)
	stray(0)
	require.ElementsMatch(t, []string{"im-stray", "im-foreign"}, b.condemned(t), "the sandbox of im-exit has not ended: its session may need it")
	requireCode(t, failure.Unavailable, b.SnapshotRecord(b.ctx, b.id, 1, "im-stray"))
	requireCode(t, failure.IllegalState, b.BundleCommit(b.ctx, bundle.Bundle{
		ID: session.NewID(session.BundlePrefix), SessionID: b.id, Generation: 1, SnapshotID: "im-stray",
	}))
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, "lost"))
	stray(0) // its image has not been searched yet
	require.NoError(t, b.ExitImagesSettle(b.ctx, []image.Exit{{SandboxID: "sb-1"}}))
	b.sql(t, "UPDATE bundles SET checkpoint = true")
	stray(0) // only a checkpoint has been saved
	b.sql(t, "UPDATE bundles SET checkpoint = false")
	stray(1)

	// An image that counts as deleted but is still listed.
	require.NoError(t, b.SnapshotsForget(b.ctx, []string{"im-stray", "im-foreign", "im-exit"}))
	stray(0)
	require.Empty(t, b.condemned(t), "the listing may be older than the deletion")
	b.sql(t, "UPDATE snapshots SET deleted_at = now() - interval '2 hours' WHERE id = 'im-stray'")
	stray(0)
	require.Equal(t, []string{"im-stray"}, b.condemned(t))
}

func TestOnlyUnusedBaseImageIsDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	use := func(name, id string) bool {
		t.Helper()
		usable, err := b.BaseImageUse(b.ctx, name, id)
		require.NoError(t, err)
		return usable
	}
	condemned := func() []string {
		t.Helper()
		b.sql(t, "UPDATE base_images SET delete_after = now()")
		ids, err := b.BaseImagesCondemn(b.ctx, time.Hour, 10)
		require.NoError(t, err)
		return ids
	}
	old := func(id string) {
		b.sql(t, "UPDATE base_images SET used_at = now() - interval '2 hours' WHERE id = $1", id)
	}
	require.True(t, use("base:1", "im-old"))
	old("im-old")
	require.Empty(t, condemned(), "it is the current one of its recipe")
	require.True(t, use("codex:1", "im-codex"))
	require.Empty(t, condemned(), "another recipe's is not a successor")
	require.True(t, use("base:2", "im-new"))

	// A sandbox runs on the image; then the session sleeps with a snapshot based on it.
	require.NoError(t, b.GenerationReserve(b.ctx, b.id, 1, "im-old"))
	require.Empty(t, condemned())
	require.NoError(t, b.SandboxRecord(b.ctx, b.id, 1, "sb-1", session.SandboxReady, time.Now().Add(time.Hour)))
	b.transit(t, session.EventReady, "")
	b.commit(t, "im-s1")
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, "saved"))
	require.Empty(t, condemned(), "a kept snapshot is made of it")
	// The next generation starts from the snapshot, and so has the same base.
	require.NoError(t, b.GenerationReserve(b.ctx, b.id, 2, "im-s1"))
	second := b.commit(t, "im-s2")
	require.NoError(t, b.BundleProve(b.ctx, second.ID))
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 2, "saved"))
	require.NoError(t, b.SnapshotsForget(b.ctx, []string{"im-s1"}))
	require.Empty(t, condemned(), "so is the snapshot of the snapshot")
	b.transit(t, session.EventStop, "")
	require.NoError(t, b.SnapshotsForget(b.ctx, []string{"im-s2"}))

	require.True(t, use("base:1", "im-old"), "a worker of the old release still creates from it")
	require.Empty(t, condemned())
	old("im-old")
	b.sql(t, "INSERT INTO snapshots (id, session_id, generation) VALUES ('im-unknown', $1, 9)", b.id)
	require.Empty(t, condemned(), "a kept snapshot whose base is not known may be made of it")
	require.NoError(t, b.SnapshotsForget(b.ctx, []string{"im-unknown"}))
	require.Equal(t, []string{"im-old"}, condemned())
	require.False(t, use("base:1", "im-old"), "from here on nothing may start from it")
	require.Equal(t, []string{"im-old"}, condemned(), "until it is forgotten")
	require.NoError(t, b.BaseImagesForget(b.ctx, []string{"im-old", "im-new"}))
	require.Empty(t, condemned())
	require.True(t, use("base:1", "im-rebuilt"))
	require.True(t, use("base:2", "im-new"))
}

// row reads one value.
func (b *harness) row(t *testing.T, to any, query string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	require.NoError(t, conn.QueryRow(b.ctx, query, args...).Scan(to))
}

// renewable makes all snapshots expire soon, and returns those that are to be renewed, sorted.
func (b *harness) renewable(t *testing.T) []string {
	t.Helper()
	b.sql(t, "UPDATE snapshots SET expires_at = now() + interval '1 day', renew_after = now()")
	due, err := b.SnapshotsRenew(b.ctx, 48*time.Hour, 100)
	require.NoError(t, err)
	again, err := b.SnapshotsRenew(b.ctx, 48*time.Hour, 100)
	require.NoError(t, err)
	require.Empty(t, again, "they are in the hands of the first")
	var ids []string
	for _, r := range due {
		ids = append(ids, r.SnapshotID)
	}
	slices.Sort(ids)
	return ids
}

// requireSnapshot checks the snapshot of a bundle, and that it counts as restorable.
func (b *harness) requireSnapshot(t *testing.T, want, bundleID string) {
	t.Helper()
	v := b.show(t, bundleID)
	require.Equal(t, want, v.SnapshotID)
	require.True(t, v.HasFiles)
}

// TestEveryNeededSnapshotIsRenewed renews snapshots that are pinned, older than the head, or shared
// with a fork.
func TestEveryNeededSnapshotIsRenewed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keep(t, 1)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	pinned := b.snapshotted(t, "im-pinned").ID
	_, err := b.BundlePin(b.ctx, pinned, true)
	require.NoError(t, err)
	f := b.fork(t, fork.Fork{BundleID: pinned})
	old := b.snapshotted(t, "im-old").ID
	g := b.fork(t, fork.Fork{BundleID: old})
	b.snapshotted(t, "im-unneeded") // once the next one is proved
	last := b.commit(t, "im-last")
	require.NoError(t, b.BundleProve(b.ctx, last.ID))
	b.sql(t, "UPDATE snapshots SET unneeded_at = NULL WHERE id = 'im-unneeded'") // its mark was missed
	require.Equal(t, []string{"im-old", "im-pinned"}, b.renewable(t), "not those that only awake sessions use")

	// The awake session keeps the originals, whose files stay.
	require.NoError(t, b.SnapshotReplace(b.ctx, b.intent(t), "im-pinned", "im-pinned-2"))
	f.requireSnapshot(t, "im-pinned-2", f.head(t))
	b.requireSnapshot(t, "im-pinned", pinned)
	require.Equal(t, []string{"im-old", "im-pinned-2"}, b.renewable(t))

	b.transit(t, session.EventHibernate, "")
	b.transit(t, session.EventSaved, "")
	require.Equal(t, []string{"im-last", "im-old", "im-pinned", "im-pinned-2"}, b.renewable(t))
	require.NoError(t, b.SnapshotReplace(b.ctx, b.intent(t), "im-pinned", "im-pinned-3"))
	require.NoError(t, b.SnapshotReplace(b.ctx, b.intent(t), "im-last", "im-last-2"))
	b.requireSnapshot(t, "im-pinned-3", pinned)
	b.requireSnapshot(t, "im-last-2", last.ID)
	require.Equal(t, 2, b.count(t, "snapshots WHERE kept_until > now() AND id IN ('im-pinned', 'im-last')"), "a restore may have begun with them")

	// A fork that is restoring stays with the snapshot that both share.
	g.transit(t, session.EventWake, "")
	require.NoError(t, b.SnapshotReplace(b.ctx, b.intent(t), "im-old", "im-old-2"))
	b.requireSnapshot(t, "im-old-2", old)
	g.requireSnapshot(t, "im-old", g.head(t))
	require.NotContains(t, b.renewable(t), "im-old")

	// A pin outlasts its session.
	b.transit(t, session.EventStop, "")
	require.Equal(t, []string{"im-pinned-2", "im-pinned-3"}, b.renewable(t))
	require.NoError(t, b.SnapshotReplace(b.ctx, b.intent(t), "im-pinned-3", "im-pinned-4"))
	b.requireSnapshot(t, "im-pinned-4", pinned)
	require.Equal(t, []string{"im-pinned-2", "im-pinned-4"}, b.renewable(t))
	_, err = b.SnapshotsAudit(b.ctx, "", 100)
	require.NoError(t, err)
	condemned := b.condemned(t)
	require.Contains(t, condemned, "im-pinned-3")
	for _, id := range []string{"im-pinned-2", "im-pinned-4", "im-old"} {
		require.NotContains(t, condemned, id)
	}
}

// TestForkInProgressKeepsRenewedSnapshot replaces the snapshot of a fork that is being made.
func TestForkInProgressKeepsRenewedSnapshot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	saved := b.snapshotted(t, "im-1").ID
	b.transit(t, session.EventHibernate, "")
	b.transit(t, session.EventSaved, "")
	finish := b.stoppedFork(t, fork.Fork{BundleID: saved}, "LOCK TABLE session_forks IN SHARE MODE")
	intent := b.intent(t)
	replaced := make(chan error, 1) // one send
	go func() { replaced <- b.SnapshotReplace(b.ctx, intent, "im-1", "im-2") }()
	require.Eventually(t, func() bool {
		return b.count(t, "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 2
	}, waitLimit, 5*time.Millisecond)
	require.NoError(t, finish())
	require.NoError(t, <-replaced)
	b.requireSnapshot(t, "im-2", saved)
	items, _, err := b.SessionForks(b.ctx, b.id, 10, "")
	require.NoError(t, err)
	require.Len(t, items, 1)
	b.requireSnapshot(t, "im-2", items[0].Head)
}

// TestSnapshotOfManyForksIsReplaced shares a snapshot among more sessions than one transaction
// changes.
func TestSnapshotOfManyForksIsReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	f := b.fork(t, fork.Fork{BundleID: b.snapshotted(t, "im-1").ID})
	b.sql(t, `INSERT INTO sessions SELECT (jsonb_populate_record(s, jsonb_build_object('id', s.id || n, 'no', nextval('sessions_no_seq')))).*
		FROM sessions s, generate_series(1, 1200) n WHERE s.id = $1`, f.id)
	b.sql(t, `INSERT INTO bundles OVERRIDING USER VALUE SELECT (jsonb_populate_record(b, jsonb_build_object('id', b.id || n, 'session_id', b.session_id || n))).*
		FROM bundles b, generate_series(1, 1200) n WHERE b.session_id = $1`, f.id)
	require.NoError(t, b.SnapshotReplace(b.ctx, b.intent(t), "im-1", "im-2"))
	require.Equal(t, 1201, b.count(t, "bundles WHERE snapshot_id = 'im-2'"))
	require.Equal(t, 1, b.count(t, "bundles WHERE snapshot_id = 'im-1'"), "the session that is awake")
	require.Zero(t, b.count(t, "snapshots WHERE kept_until IS NOT NULL"))
}
