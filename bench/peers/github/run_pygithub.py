"""A script with PyGithub, as its documentation shows them. It keeps no state: each run reads everything."""

from address import redirect_to
from records import Job

from github import Auth, Github

job = Job()
redirect_to(job.url)
github = Github(auth=Auth.Token(job.token), per_page=100)
for name in job.repositories:
    repository = github.get_repo(name)
    for issue in repository.get_issues(state="all"):
        if "/issues/" in issue.html_url:  # `issue.pull_request` would cost a call where it is missing
            job.store("issue", issue.id)
    for pull in repository.get_pulls(state="all"):
        job.store("pull_request", pull.id)
    for commit in repository.get_commits():
        job.store("commit", commit.sha)
