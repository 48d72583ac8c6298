"""Fields that queries of GraphQL select, under the names that the REST API has for them.

The documents of all kinds have the same names, whichever API they come from. The registry in `kinds` assigns the
selections to the kinds.
"""

DISCUSSION = """
    id: databaseId node_id: id number title body html_url: url
    created_at: createdAt updated_at: updatedAt closed closed_at: closedAt state_reason: stateReason
    locked active_lock_reason: activeLockReason author_association: authorAssociation
    user: author { login ... on User { id: databaseId } ... on Bot { id: databaseId } }
    category { node_id: id name slug is_answerable: isAnswerable }
    is_answered: isAnswered answer_chosen_at: answerChosenAt answer_chosen_by: answerChosenBy { login }
    answer { id: databaseId html_url: url }
    upvotes: upvoteCount comments(first: 1) { total_count: totalCount }
"""

DISCUSSION_COMMENT = """
    id: databaseId node_id: id body html_url: url created_at: createdAt updated_at: updatedAt
    author_association: authorAssociation is_answer: isAnswer upvotes: upvoteCount
    user: author { login ... on User { id: databaseId } ... on Bot { id: databaseId } }
"""

REVIEW_THREAD = """
    id node_id: id is_resolved: isResolved is_outdated: isOutdated is_collapsed: isCollapsed path line
    start_line: startLine original_line: originalLine diff_side: diffSide subject_type: subjectType
    resolved_by: resolvedBy { login id: databaseId }
    comments(first: 1) { total_count: totalCount nodes { id: fullDatabaseId } }
"""
