package dashboard

// Keys and key prefixes of the documents that the dashboard keeps in the store. They must not
// change, because Weir must be able to read a store that an earlier version wrote. Code that copies
// a store uses them to decide which documents to copy.
const (
	// AccountKey is the key of the document with the admin account. All nodes that share a store
	// share this document.
	AccountKey = "dashboard/account"

	// SessionPrefix is the prefix of the keys of sessions. Each session is one document. All nodes
	// that share a store share the sessions. A copy of one store in another leaves them out,
	// because a browser that is signed in to one store must not be signed in to the other.
	SessionPrefix = "dashboard/session/"

	// RefusalsKey is the key of the document with refused sign-ins. In a cluster each node has its
	// own document. Its key is RefusalsKey, a slash and the name of the node.
	RefusalsKey = "dashboard/refused"

	// AuditPrefix is the prefix of the keys of audit log entries. Each entry is one document. All
	// nodes that share a store share the entries.
	AuditPrefix = "audit/"

	// FiguresPrefix is the prefix of the keys of the hourly figures that the plots show. These
	// figures describe the server that measured them. They mean nothing in another store, so a copy
	// of a store leaves them out.
	FiguresPrefix = "figures/"
)
