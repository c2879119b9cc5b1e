package manifest

// Manifest lists the required result of a restore.
type Manifest struct {
	// AgentFiles are the agent's own files: its memory.
	AgentFiles []File `json:"agentFiles"`
	// Git is the state of the workspace's repository; nil if there is none.
	Git *Git `json:"git,omitempty"`
	// Tree describes every entry of the workspace; nil in bundles of earlier versions, and of
	// sandboxes that were not sealed.
	Tree *Tree `json:"tree,omitempty"`
	// LastSeq is the newest event of the session when the manifest was taken.
	LastSeq int64 `json:"lastSeq"`
	// Runner is the build of the runner in the sandbox; empty if unknown.
	Runner string `json:"runner,omitempty"`
	// Lost describes for people the parts that are known to be missing from the bundle, such as
	// changes made after the snapshot that it fell back to.
	Lost []string `json:"lost,omitempty"`
	// From describes the origin of an imported session, for people.
	From string `json:"from,omitempty"`
}

// File is one file with its digest.
type File struct {
	Path   string `json:"path"` // absolute, in the sandbox
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Git is the state of a repository in the workspace.
type Git struct {
	Head      string `json:"head"`
	DirtyHash string `json:"dirtyHash"` // hash over the uncommitted changes; empty when clean
}

// Tree is the digest of a workspace. The index from which it was computed is in the snapshot.
type Tree struct {
	Digest  string `json:"digest,omitempty"` // SHA-256 over path, type, permissions, size, modification time and link target of each entry
	Index   string `json:"index,omitempty"`  // SHA-256 of the index, which shows which entries differ
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
	// Unchecked is the reason why there is no digest.
	Unchecked string `json:"unchecked,omitempty"`
}

// TreeDifference is the difference between a workspace and a Tree.
type TreeDifference struct {
	// Paths are absolute paths of missing entries, and, with a remark, of changed and added ones.
	// There are at most 50; More counts the rest.
	Paths []string `json:"paths,omitempty"`
	More  int      `json:"more,omitempty"`
	// Unchecked describes the parts that were not compared.
	Unchecked []string `json:"unchecked,omitempty"`
}
