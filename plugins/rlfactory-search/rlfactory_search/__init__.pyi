from .corpus import FileCorpus as FileCorpus
from .retrievers import make_retriever as make_retriever
from .task import SearchTask as SearchTask
from .worlds import Names as Names
from .worlds import Question as Question
from .worlds import World as World
